package syntax_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/health"
	"fairlead/internal/model"
	"fairlead/internal/syntax"
)

// set sets a field of a service by its name.
func set(t *testing.T, v *model.VirtualService, name, word string) error {
	t.Helper()
	for _, f := range append(syntax.ServiceFields(), syntax.CheckFields()...) {
		if f.Name == name {
			return f.Set(v, word)
		}
	}
	t.Fatalf("there is no field %s", name)
	return nil
}

// TestFieldsRefuseZero checks that fields for which 0 would mean the default refuse
// it, and that they accept the word default.
func TestFieldsRefuseZero(t *testing.T) {
	for name, word := range map[string]string{"rise": "0", "fall": "0", "quorum": "0", "interval": "0s", "fast": "0s",
		"down": "0s", "timeout": "0s", "drain": "0s"} {
		v := model.VirtualService{Quorum: 2, Drain: time.Second,
			Check: model.Check{Rise: 4, Fall: 4, Interval: time.Second, Fast: time.Second, Down: time.Second,
				Timeout: time.Second}}
		before := v.Clone()
		err := set(t, &v, name, word)
		if err == nil || !strings.Contains(err.Error(), "want more than 0, or the word default") {
			t.Errorf("%s %s: %v", name, word, err)
		}
		if err := set(t, &v, name, "default"); err != nil {
			t.Errorf("%s default: %v", name, err)
		}
		if v.Equal(before) {
			t.Errorf("%s default changes nothing", name)
		}
	}
	var v model.VirtualService
	if err := set(t, &v, "jitter", "0"); err != nil || v.Check.Jitter != -1 {
		t.Errorf("jitter 0: got %d percent (%v), want -1 (none)", v.Check.Jitter, err)
	}
	if err := set(t, &v, "persistence", "0s"); err != nil {
		t.Errorf("no persistence: %v", err)
	}
}

func TestParseTime(t *testing.T) {
	for word, want := range map[string]time.Duration{"30d": 720 * time.Hour, "1d12h": 36 * time.Hour,
		"500ms": 500 * time.Millisecond, "1h30m": 90 * time.Minute, "0s": 0, "0d": 0} {
		if got, err := syntax.ParseTime(word); err != nil || got != want {
			t.Errorf("%s: got %s (%v), want %s", word, got, err, want)
		}
	}
	for _, word := range []string{"", "d", "5", "1.5d", "-1d", "1d-2h", "99999d", "2d3d", "1d2", "30 d"} {
		if got, err := syntax.ParseTime(word); err == nil {
			t.Errorf("%q: got %s, want an error", word, got)
		}
	}
}

// TestUnusedFieldsAreRefused checks that the error names a field that the check
// does not use.
func TestUnusedFieldsAreRefused(t *testing.T) {
	for want, c := range map[string]model.Check{
		"tls-name": {Type: model.CheckTCP, TLSName: "example.org"},
		"expiry":   {Type: model.CheckGRPC, Expiry: time.Hour},
		"path":     {Type: model.CheckTCP, Path: "/"},
		"query":    {Type: model.CheckUDP, Query: "example.org"},
		"send":     {Type: model.CheckHTTP, Send: "x"},
		"tls:":     {Type: model.CheckHTTP, TLS: true},
		"command":  {Type: model.CheckTCP, Command: []string{"/bin/true"}},
		"host":     {Passive: true, Host: "example.org"},
		"type":     {Rise: 1},
	} {
		if err := syntax.TypedCheck(c); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error about %s", c, err, want)
		}
	}
	for _, c := range []model.Check{
		{}, {Passive: true}, {Type: model.CheckHTTPS, TLSName: "example.org", Expiry: time.Hour, TLS: true, Path: "/"},
		{Type: model.CheckTCP, TLS: true, TLSName: "example.org", Send: "x", Expect: "y"},
		{Type: model.CheckNone, Path: "/", TLSName: "example.org"},
	} {
		if err := syntax.TypedCheck(c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestTypesNameTheirFields checks that each setting that a type of check names is a
// field, or the command.
func TestTypesNameTheirFields(t *testing.T) {
	names := []string{"command"}
	for _, f := range syntax.CheckFields() {
		names = append(names, f.Name)
	}
	for _, of := range health.Types() {
		for _, setting := range of.Settings {
			if !slices.Contains(names, setting) {
				t.Errorf("type %s uses the setting %s, and there is no such field", of.Name, setting)
			}
		}
	}
}
