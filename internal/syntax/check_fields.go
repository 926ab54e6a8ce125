package syntax

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fairlead/internal/health"
	"fairlead/internal/model"
)

// CheckFields returns the settings of a service's check, without its command.
func CheckFields() []ServiceField {
	return append([]ServiceField{
		chosen("type", "type of the health check, default none", Checks,
			func(v *model.VirtualService) *model.CheckType { return &v.Check.Type }).as("check"),
		counted("port", "PORT", "port to check (default: the real server's port)",
			func(v *model.VirtualService) *uint16 { return &v.Check.Port }).as("check-port"),
		timed("interval", "time between checks (default 2s)",
			func(v *model.VirtualService) *time.Duration { return &v.Check.Interval }).positive(),
		timed("fast", "time between checks while a state is changing (default: the interval), or while a check has "+
			"no reply (default: a quarter of the timeout)",
			func(v *model.VirtualService) *time.Duration { return &v.Check.Fast }).positive().as("fast-interval"),
		timed("down", "time between checks of a server that is down (default: the interval)",
			func(v *model.VirtualService) *time.Duration { return &v.Check.Down }).positive().as("down-interval"),
		timed("timeout", "how long a check may take (default: the interval, at most 5s)",
			func(v *model.VirtualService) *time.Duration { return &v.Check.Timeout }).positive(),
		counted("rise", "NUMBER", "number of successful checks in a row that make a server up (default 2)",
			func(v *model.VirtualService) *int { return &v.Check.Rise }).positive(),
		counted("fall", "NUMBER", "number of failed checks in a row that make a server down (default 3)",
			func(v *model.VirtualService) *int { return &v.Check.Fall }).positive(),
		jitter(),
		chosen("initial", "state of a real server until its first check ends; by default, servers of a new "+
			"service are up, and servers that are added to a service later are down",
			[]string{string(model.InitialUp), string(model.InitialDown)},
			func(v *model.VirtualService) *model.Initial { return &v.Check.Initial }),
		timed("slow-start", "time in which a server's weight grows to its full value after a failure (default 0)",
			func(v *model.VirtualService) *time.Duration { return &v.Check.SlowStart }),
		counted("agent", "PORT", "port of an agent on the server that reports the server's weight (HAProxy's "+
			"agent-check; default: none)", func(v *model.VirtualService) *uint16 { return &v.Check.Agent }),
		decided("passive", "take a server out if clients' connections to it fail",
			func(v *model.VirtualService) *bool { return &v.Check.Passive }),
	}, typeFields()...)
}

// jitter returns a field for which 0 means no jitter, and not the default.
func jitter() ServiceField {
	f := counted("jitter", "PERCENT", "random variation of the time between checks, in percent of the interval "+
		"(default 10; 0 for none)", func(v *model.VirtualService) *int { return &v.Check.Jitter })
	set := f.Set
	f.Set = func(v *model.VirtualService, word string) error {
		err := set(v, word)
		if err == nil && v.Check.Jitter == 0 {
			v.Check.Jitter = -1
		}
		return err
	}
	return f
}

// TypedCheck returns an error for a check that has settings but no type, because
// it would never run. Passive checks and agents need no type. It also returns an
// error for fields that the check does not use.
func TypedCheck(c model.Check) error {
	if c.Type == "" && !c.Passive && c.Agent == 0 && !c.IsZero() {
		return fmt.Errorf("type: want one of %s", strings.Join(Checks, ", "))
	}
	if all := Unused(c); len(all) > 0 {
		return fmt.Errorf("%s: only checks of type %s use it: leave it out", all[0].Name, all[0].users)
	}
	if len(c.Command) > 0 && UnusedCommand(c) {
		return fmt.Errorf("command: only checks of type %s use it: leave it out", command().users)
	}
	return nil
}

// command returns the field of a check's command, which has more than one word and is
// read by its users.
func command() ServiceField { return ofTypes(ServiceField{Name: "command"}) }

// UnusedCommand reports whether the check does not use its command. A check of type
// none keeps it.
func UnusedCommand(c model.Check) bool {
	return c.Type != model.CheckNone && !command().used(c)
}

// Unused returns the fields that are set although the check does not use them. A
// check of type none keeps all fields.
func Unused(c model.Check) (all []ServiceField) {
	if c.Type == model.CheckNone {
		return nil
	}
	for _, f := range typeFields() {
		if f.Get(model.VirtualService{Check: c}) != "" && !f.used(c) {
			all = append(all, f)
		}
	}
	return all
}

// ofTypes returns the field as one that belongs to the types of check that name it
// in their settings.
func ofTypes(f ServiceField) ServiceField {
	var types []string
	for _, t := range health.Types() {
		if t.Uses(f.Name) {
			types = append(types, string(t.Name))
		}
	}
	f.users = strings.Join(types, ", ")
	f.used = func(c model.Check) bool { return slices.Contains(types, string(c.Type)) }
	return f
}

// labelled returns the field with its types before the help.
func (f ServiceField) labelled() ServiceField {
	f.Help = f.users + ": " + f.Help
	return f
}

// ofTLS returns the field as one that belongs to checks that use TLS.
func ofTLS(f ServiceField) ServiceField {
	var always, optional []string
	for _, t := range health.Types() {
		switch {
		case t.TLS:
			always = append(always, string(t.Name))
		case t.Uses("tls"):
			optional = append(optional, string(t.Name))
		}
	}
	f.users = strings.Join(always, ", ") + ", or of type " + strings.Join(optional, " or ") + " with tls,"
	f.used = func(c model.Check) bool {
		return slices.Contains(always, string(c.Type)) || c.TLS && slices.Contains(optional, string(c.Type))
	}
	return f
}

// typeFields returns the fields that belong to some types of check only.
func typeFields() []ServiceField {
	all := []ServiceField{
		ofTypes(worded("method", "METHOD", "http: request method (default GET)",
			func(v *model.VirtualService) *string { return &v.Check.Method })),
		ofTypes(worded("path", "PATH", "http: path to request (default /)",
			func(v *model.VirtualService) *string { return &v.Check.Path })),
		ofTypes(worded("host", "NAME", "http: host name in the request (default: the server's address)",
			func(v *model.VirtualService) *string { return &v.Check.Host })),
		ofTypes(worded("status", "CODES", "http: status codes of a healthy server, e.g. 200,300-399 (default 200-399)",
			func(v *model.VirtualService) *string { return &v.Check.Status })),
		ofTypes(worded("body", "REGEXP", "http: regular expression that the first 64 KiB of the body must match",
			func(v *model.VirtualService) *string { return &v.Check.Body })),
		ofTypes(decided("tls", "tcp, grpc: use TLS, as https does",
			func(v *model.VirtualService) *bool { return &v.Check.TLS })),
		ofTLS(worded("tls-name", "NAME", "https, or with tls: name for which the server's certificate must be valid; "+
			"if empty, the certificate is not verified",
			func(v *model.VirtualService) *string { return &v.Check.TLSName })),
		ofTLS(timed("expiry", "https, or with tls: fail if the certificate expires within this time (default: do not "+
			"check)", func(v *model.VirtualService) *time.Duration { return &v.Check.Expiry })),
		ofTypes(worded("service", "NAME", "service to ask about (default: the server as a whole)",
			func(v *model.VirtualService) *string { return &v.Check.Service })).labelled(),
		ofTypes(worded("query", "NAME", "name to query",
			func(v *model.VirtualService) *string { return &v.Check.Query })).labelled(),
		ofTypes(worded("record", "TYPE", "record type to query (default A)",
			func(v *model.VirtualService) *string { return &v.Check.Record })).labelled(),
		ofTypes(worded("send", "TEXT", "text to send",
			func(v *model.VirtualService) *string { return &v.Check.Send })).labelled(),
		ofTypes(worded("expect", "REGEXP", "regular expression that the reply must match; without it, a udp "+
			"check fails only if the port is reported closed",
			func(v *model.VirtualService) *string { return &v.Check.Expect })).labelled(),
	}
	for i := range all {
		all[i].Flag = "check-" + all[i].Name
	}
	return all
}
