package text

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead/internal/model"
)

// ServiceField is a setting of a virtual service with one word as its value: a
// flag of the commands, and a key of files.
type ServiceField struct {
	// Name is the key in files, and Flag the name of the flag.
	Name, Flag string
	// Value is the placeholder of the value in the help; empty for a Boolean.
	Value string
	Help  string
	// Words are the allowed values, for completion; nil if there is no fixed set.
	Words []string
	// Set parses a value and sets the field.
	Set func(*model.VirtualService, string) error
	// Get writes the value as Set reads it, and "" for the default.
	Get func(model.VirtualService) string
	// Clear sets the default.
	Clear func(*model.VirtualService)
	// used reports whether a check uses the field, and users names the types of
	// check that do. They are nil and empty for a field that all checks use.
	used  func(model.Check) bool
	users string
}

// Default is the word that sets a field's default, for fields that refuse 0.
const Default = "default"

// positive makes a field refuse 0, which would silently mean the default.
func (f ServiceField) positive() ServiceField {
	set := f.Set
	f.Set = func(v *model.VirtualService, word string) error {
		if word == Default {
			f.Clear(v)
			return nil
		}
		if err := set(v, word); err != nil {
			return err
		}
		if f.Get(*v) == "" {
			return fmt.Errorf("%s %q: want more than 0, or the word %s", f.Name, word, Default)
		}
		return nil
	}
	return f
}

// zero returns a function that sets a field to its default, the zero value.
func zero[T any](of func(*model.VirtualService) *T) func(*model.VirtualService) {
	return func(v *model.VirtualService) {
		var none T
		*of(v) = none
	}
}

// chosen returns a field whose value is one of some words.
func chosen[T ~string](name, help string, words []string, of func(*model.VirtualService) *T) ServiceField {
	read := oneOf[T](name, words)
	return ServiceField{Name: name, Flag: name, Value: strings.ToUpper(name), Help: help + ": " + strings.Join(words, ", "), Words: words,
		Set: func(v *model.VirtualService, text string) (err error) { *of(v), err = read(text); return err },
		Get: func(v model.VirtualService) string { return string(*of(&v)) }, Clear: zero(of)}
}

// counted returns a field whose value is a number.
func counted[T int | uint16](name, value, help string, of func(*model.VirtualService) *T) ServiceField {
	return ServiceField{Name: name, Flag: name, Value: value, Help: help, Clear: zero(of),
		Set: func(v *model.VirtualService, text string) error {
			n, err := strconv.ParseInt(text, 10, 32)
			if err != nil || int64(T(n)) != n {
				most := ""
				if top := ^T(0); top > 0 { // unsigned
					most = fmt.Sprintf(" from 0 to %d", top)
				}
				return fmt.Errorf("%s %q: want a number%s", name, text, most)
			}
			*of(v) = T(n)
			return nil
		},
		Get: func(v model.VirtualService) string {
			if n := *of(&v); n != 0 {
				return strconv.Itoa(int(n))
			}
			return ""
		}}
}

// timed returns a field whose value is a duration.
func timed(name, help string, of func(*model.VirtualService) *time.Duration) ServiceField {
	return ServiceField{Name: name, Flag: name, Value: "TIME", Help: help, Clear: zero(of),
		Set: func(v *model.VirtualService, text string) error {
			t, err := ParseTime(text)
			if err != nil {
				return fmt.Errorf("%s %w", name, err)
			}
			*of(v) = t
			return nil
		},
		Get: func(v model.VirtualService) string { return FormatTime(*of(&v)) }}
}

// ParseTime parses a duration with its unit. In addition to Go's units it knows
// days: 500ms, 2s, 5m, 30d, 1d12h.
func ParseTime(text string) (time.Duration, error) {
	wrong := fmt.Errorf("%q: want a time with its unit, e.g. 500ms, 2s, 5m or 30d", text)
	days, rest, inDays := strings.Cut(text, "d")
	if !inDays {
		days, rest = "0", text
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, wrong
	}
	var t time.Duration
	if rest != "" || !inDays {
		if t, err = time.ParseDuration(rest); err != nil || inDays && t < 0 {
			return 0, wrong
		}
	}
	return time.Duration(n)*24*time.Hour + t, nil
}

// FormatTime writes a duration without parts that are zero, and "" for 0.
func FormatTime(t time.Duration) string {
	if t == 0 {
		return ""
	}
	text := t.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// worded returns a field whose value is any word.
func worded(name, value, help string, of func(*model.VirtualService) *string) ServiceField {
	return ServiceField{Name: name, Flag: name, Value: value, Help: help,
		Set: func(v *model.VirtualService, text string) error { *of(v) = text; return nil },
		Get: func(v model.VirtualService) string { return *of(&v) }, Clear: zero(of)}
}

// decided returns a field whose value is true or false.
func decided(name, help string, of func(*model.VirtualService) *bool) ServiceField {
	return ServiceField{Name: name, Flag: name, Help: help, Clear: zero(of),
		Set: func(v *model.VirtualService, text string) (err error) {
			if text != "true" && text != "false" {
				return fmt.Errorf("%q: want true or false", text)
			}
			*of(v) = text == "true"
			return nil
		},
		Get: func(v model.VirtualService) string {
			if *of(&v) {
				return "true"
			}
			return ""
		}}
}

// as returns the field with a flag that differs from its name.
func (f ServiceField) as(flag string) ServiceField {
	f.Flag = flag
	return f
}

// ServiceFields returns the settings of a service, without its addresses, its real
// servers and its check.
func ServiceFields() []ServiceField {
	return []ServiceField{
		worded("interface", "LINK", "link of the host to which the addresses are added; if empty, no address is "+
			"added, and other means must bring the packets to this host (with forward local: lo)",
			func(v *model.VirtualService) *string { return &v.Interface }),
		chosen("scheduler", "how a real server is chosen for a new connection, default mh", Schedulers,
			func(v *model.VirtualService) *model.Scheduler { return &v.Scheduler }),
		chosen("forward", "how packets are forwarded, default nat; with local they are not: this host is a real "+
			"server of a service on another host", Forwards,
			func(v *model.VirtualService) *model.Forward { return &v.Forward }),
		tunnel(),
		chosen("plane", "data plane that forwards the packets, default auto", Planes,
			func(v *model.VirtualService) *model.Plane { return &v.Plane }),
		chosen("source-nat", "forward nat: whether real servers see the host's address instead of the client's, "+
			"default auto", SourceNATs, func(v *model.VirtualService) *model.SourceNAT { return &v.SourceNAT }),
		timed("persistence", "how long a client keeps its real server after its last new connection (default: no "+
			"persistence)", func(v *model.VirtualService) *time.Duration { return &v.Persistence }),
		sorry(),
		counted("quorum", "NUMBER", "number of real servers that must be up (default 1)",
			func(v *model.VirtualService) *int { return &v.Quorum }).positive(),
		counted("panic", "PERCENT", "use all real servers, also those that are down, if fewer than this share is up "+
			"(default: never)", func(v *model.VirtualService) *int { return &v.Panic }),
		timed("drain", "how long a removed or drained real server keeps its connections (default: until they end)",
			func(v *model.VirtualService) *time.Duration { return &v.Drain }).positive(),
	}
}

func sorry() ServiceField {
	return ServiceField{Name: "sorry", Flag: "sorry", Value: "ADDRESS[:PORT]", Help: "server that gets the clients " +
		"while fewer real servers than the quorum are up (default: none)",
		Set: func(v *model.VirtualService, text string) (err error) { v.Sorry, err = Sorry(text); return err },
		Get: func(v model.VirtualService) string {
			if v.Sorry == (netip.AddrPort{}) {
				return ""
			}
			return FormatSorry(v.Sorry)
		}}
}

// CheckFields returns the settings of a service's check, without its command.
func CheckFields() []ServiceField {
	return append([]ServiceField{
		chosen("type", "type of the health check, default none", Checks,
			func(v *model.VirtualService) *model.CheckType { return &v.Check.Type }).as("check"),
		counted("port", "PORT", "port to check (default: the real server's port)",
			func(v *model.VirtualService) *uint16 { return &v.Check.Port }).as("check-port"),
		timed("interval", "time between checks (default 2s)", func(v *model.VirtualService) *time.Duration { return &v.Check.Interval }).positive(),
		timed("fast", "time between checks while a state is changing (default: the interval), or while a check has "+
			"no reply (default: a quarter of the timeout)",
			func(v *model.VirtualService) *time.Duration { return &v.Check.Fast }).positive().as("fast-interval"),
		timed("down", "time between checks of a server that is down (default: the interval)",
			func(v *model.VirtualService) *time.Duration { return &v.Check.Down }).positive().as("down-interval"),
		timed("timeout", "how long a check may take (default: the interval, at most 5s)", func(v *model.VirtualService) *time.Duration { return &v.Check.Timeout }).positive(),
		counted("rise", "NUMBER", "number of successful checks in a row that make a server up (default 2)",
			func(v *model.VirtualService) *int { return &v.Check.Rise }).positive(),
		counted("fall", "NUMBER", "number of failed checks in a row that make a server down (default 3)",
			func(v *model.VirtualService) *int { return &v.Check.Fall }).positive(),
		jitter(),
		chosen("initial", "state of a server until its first check, default up in a new service, down in an "+
			"existing one", []string{string(model.InitialUp), string(model.InitialDown)},
			func(v *model.VirtualService) *model.Initial { return &v.Check.Initial }),
		timed("slow-start", "time in which a server's weight grows to its full value after a failure (default 0)",
			func(v *model.VirtualService) *time.Duration { return &v.Check.SlowStart }),
		counted("agent", "PORT", "port of an agent on the server that reports the server's weight (HAProxy's "+
			"agent-check; default: none)", func(v *model.VirtualService) *uint16 { return &v.Check.Agent }),
		decided("passive", "take a server out if clients' connections to it fail",
			func(v *model.VirtualService) *bool { return &v.Check.Passive }),
	}, ofTypes()...)
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
	if len(c.Command) > 0 && c.Type != model.CheckExec && c.Type != model.CheckNone {
		return errors.New("command: only checks of type exec use it: leave it out")
	}
	return nil
}

// Unused returns the fields that are set although the check does not use them. A
// check of type none keeps all fields.
func Unused(c model.Check) (all []ServiceField) {
	if c.Type == model.CheckNone {
		return nil
	}
	for _, f := range ofTypes() {
		if f.Get(model.VirtualService{Check: c}) != "" && !f.used(c) {
			all = append(all, f)
		}
	}
	return all
}

// by makes fields belong to some types of check.
func by(types []model.CheckType, fields ...ServiceField) []ServiceField {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	for i := range fields {
		fields[i].users = strings.Join(names, ", ")
		fields[i].used = func(c model.Check) bool { return slices.Contains(types, c.Type) }
	}
	return fields
}

// bySecure makes fields belong to checks that use TLS.
func bySecure(fields ...ServiceField) []ServiceField {
	for i := range fields {
		fields[i].users = "https, or of type tcp or grpc with tls,"
		fields[i].used = func(c model.Check) bool {
			return c.Type == model.CheckHTTPS || c.TLS && (c.Type == model.CheckTCP || c.Type == model.CheckGRPC)
		}
	}
	return fields
}

// ofTypes returns the fields that belong to some types of check only.
func ofTypes() []ServiceField {
	all := slices.Concat(
		by([]model.CheckType{model.CheckHTTP, model.CheckHTTPS},
			worded("method", "METHOD", "http: request method (default GET)", func(v *model.VirtualService) *string { return &v.Check.Method }),
			worded("path", "PATH", "http: path to request (default /)",
				func(v *model.VirtualService) *string { return &v.Check.Path }),
			worded("host", "NAME", "http: host name in the request (default: the server's address)",
				func(v *model.VirtualService) *string { return &v.Check.Host }),
			worded("status", "CODES", "http: status codes of a healthy server, e.g. 200,300-399 (default 200-399)",
				func(v *model.VirtualService) *string { return &v.Check.Status }),
			worded("body", "REGEXP", "http: regular expression that the first 64 KiB of the body must match",
				func(v *model.VirtualService) *string { return &v.Check.Body })),
		by([]model.CheckType{model.CheckTCP, model.CheckGRPC, model.CheckHTTPS},
			decided("tls", "tcp, grpc: use TLS, as https does",
				func(v *model.VirtualService) *bool { return &v.Check.TLS })),
		bySecure(
			worded("tls-name", "NAME", "https, or with tls: name for which the server's certificate must be valid; "+
				"if empty, the certificate is not verified",
				func(v *model.VirtualService) *string { return &v.Check.TLSName }),
			timed("expiry", "https, or with tls: fail if the certificate expires within this time (default: do not "+
				"check)", func(v *model.VirtualService) *time.Duration { return &v.Check.Expiry })),
		by([]model.CheckType{model.CheckGRPC},
			worded("service", "NAME", "grpc: service to ask about (default: the server as a whole)",
				func(v *model.VirtualService) *string { return &v.Check.Service })),
		by([]model.CheckType{model.CheckDNS},
			worded("query", "NAME", "dns: name to query",
				func(v *model.VirtualService) *string { return &v.Check.Query }),
			worded("record", "TYPE", "dns: record type to query (default A)",
				func(v *model.VirtualService) *string { return &v.Check.Record })),
		by([]model.CheckType{model.CheckTCP, model.CheckUDP},
			worded("send", "TEXT", "tcp, udp: text to send",
				func(v *model.VirtualService) *string { return &v.Check.Send }),
			worded("expect", "REGEXP", "tcp, udp: regular expression that the reply must match; without it, a udp "+
				"check fails only if the port is reported closed",
				func(v *model.VirtualService) *string { return &v.Check.Expect })),
	)
	for i := range all {
		all[i].Flag = "check-" + all[i].Name
	}
	return all
}
