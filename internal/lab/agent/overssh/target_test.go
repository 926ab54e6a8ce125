package overssh

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Target{
		"ssh://web":                           {Host: "web"},
		"web":                                 {Host: "web"},
		"root@192.0.2.2":                      {User: "root", Host: "192.0.2.2"},
		"root@192.0.2.2/eth1":                 {User: "root", Host: "192.0.2.2", Link: "eth1"},
		"ssh://a@b@web_1.example:2222/eth0.5": {User: "a@b", Host: "web_1.example", Port: "2222", Link: "eth0.5"},
		"ssh://root@[2001:db8::1]:22":         {User: "root", Host: "2001:db8::1", Port: "22"},
		"ssh://[fe80::1%eth0]":                {Host: "fe80::1%eth0"},
		"2001:db8::1":                         {Host: "2001:db8::1"},
		"ssh://2001:db8::1":                   {Host: "2001:db8::1"},
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
		if again, err := Parse(got.String()); err != nil || again.Host != got.Host || again.Port != got.Port {
			t.Errorf("%s: printed as %s, which is %+v, %v", text, got, again, err)
		}
	}
}

// TestHostileTargets: no machine is an option of ssh, or has characters for a shell.
func TestHostileTargets(t *testing.T) {
	for _, text := range []string{"", "ssh://", "-oProxyCommand=id", "ssh://-oProxyCommand=id", "ssh://-l@web", "a b",
		"web;id", "ssh://$(id)", "ssh://`id`@web", "ssh://web/$(id)", "ssh://web/eth0;id", "ssh://web/-x", "web/eth0 b",
		"ssh://web:22x", "ssh://web:-1", "ssh://user:password@web", "ssh://web\n", "ssh://web=fl1-x", "ssh://web/a/b",
		"ssh://web/" + strings.Repeat("e", 16)} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q: %+v, want an error", text, got)
		}
	}
}

// TestRemoteCommand: the command has one argument in single quotes, which no shell
// changes, and is on one line.
func TestRemoteCommand(t *testing.T) {
	body, ok := strings.CutPrefix(remoteCommand, "sh -c '")
	body, closed := strings.CutSuffix(body, "'")
	if !ok || !closed || strings.ContainsAny(body, "'!\n") {
		t.Errorf("the command is %s", remoteCommand)
	}
}
