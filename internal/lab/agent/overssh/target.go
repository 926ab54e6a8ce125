package overssh

import (
	"fmt"
	"net"
	"regexp"
	"strings"
)

// Scheme begins a machine that is reached with ssh.
const Scheme = "ssh://"

// Target is a machine that is reached with ssh.
type Target struct {
	// User and Port are empty if ssh's configuration determines them. Host is a name,
	// an address, or an alias of the configuration.
	User, Host, Port string
	// Link is the link that the agent exposes. If empty, it is the one of the machine's
	// route to the ssh client.
	Link string
}

// The characters of each part. None has a meaning in a shell: ssh passes the host and
// the user to the commands of its configuration, for example ProxyCommand.
var (
	hostPattern = regexp.MustCompile(`^[A-Za-z0-9_:][A-Za-z0-9_.:%-]*$`)
	userPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@+-]*$`)
	portPattern = regexp.MustCompile(`^[0-9]{1,5}$`)
	linkPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,14}$`)
)

// Parse parses ssh://[USER@]HOST[:PORT][/LINK], or [USER@]HOST[/LINK] as for ssh(1).
func Parse(text string) (Target, error) {
	var t Target
	rest, withPort := strings.CutPrefix(text, Scheme)
	rest, link, linked := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		t.User, rest = rest[:at], rest[at+1:]
		if !userPattern.MatchString(t.User) {
			return t, invalid(text, "the user", t.User)
		}
	}
	t.Host = rest
	if host, port, err := net.SplitHostPort(rest); withPort && err == nil {
		t.Host, t.Port = host, port
		if !portPattern.MatchString(port) {
			return t, invalid(text, "the port", port)
		}
	}
	t.Host = strings.TrimSuffix(strings.TrimPrefix(t.Host, "["), "]")
	if !hostPattern.MatchString(t.Host) {
		return t, invalid(text, "the host", t.Host)
	}
	if t.Link = link; linked && link != "" && !linkPattern.MatchString(link) {
		return t, invalid(text, "the link", link)
	}
	return t, nil
}

func invalid(text, part, value string) error {
	return fmt.Errorf("%q: %s %q is invalid: want %s[USER@]HOST[:PORT][/LINK]", text, part, value, Scheme)
}

// String returns the machine without the link, as ssh(1) accepts it.
func (t Target) String() string {
	text := t.Host
	if strings.Contains(text, ":") {
		text = "[" + text + "]"
	}
	if t.User != "" {
		text = t.User + "@" + text
	}
	if t.Port != "" {
		text += ":" + t.Port
	}
	return Scheme + text
}

// arguments returns those of ssh. ssh never asks for a password, and ends when the
// machine has been silent for 15 seconds. Its stream has no terminal and forwards
// nothing.
func (t Target) arguments() []string {
	args := []string{"-T", "-a", "-x"}
	for _, option := range []string{"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5",
		"ServerAliveCountMax=3", "ClearAllForwardings=yes", "ControlMaster=no", "LogLevel=ERROR"} {
		args = append(args, "-o", option)
	}
	if t.User != "" {
		args = append(args, "-l", t.User)
	}
	if t.Port != "" {
		args = append(args, "-p", t.Port)
	}
	return append(args, "--", t.Host, remoteCommand)
}
