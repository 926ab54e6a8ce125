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

// ServiceField is a choice of a virtual service that one word says: a flag of
// the commands, and a field of files.
type ServiceField struct {
	// Name is the field's, and Flag that of the commands.
	Name, Flag string
	// Value says what the word is; empty is true or false.
	Value string
	Help  string
	// Words completes the word, if it is one of some.
	Words []string
	// Set reads the word.
	Set func(*model.VirtualService, string) error
	// Get writes what Set reads, and nothing for what a service has by default.
	Get func(model.VirtualService) string
	// Clear sets the default.
	Clear func(*model.VirtualService)
	// used reports whether a check uses the field, and users says which checks do;
	// nil and empty for a field that any check uses.
	used  func(model.Check) bool
	users string
}

// Default is the word for a field's default, where 0 is not one of its values.
const Default = "default"

// positive makes 0 no value of a field: it would mean the default, silently.
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

// zero sets a field's default, which is the zero value.
func zero[T any](of func(*model.VirtualService) *T) func(*model.VirtualService) {
	return func(v *model.VirtualService) {
		var none T
		*of(v) = none
	}
}

// chosen is a field that is one of some words.
func chosen[T ~string](name, help string, words []string, of func(*model.VirtualService) *T) ServiceField {
	read := oneOf[T](name, words)
	return ServiceField{Name: name, Flag: name, Value: strings.ToUpper(name), Help: help + ": " + strings.Join(words, ", "), Words: words,
		Set: func(v *model.VirtualService, text string) (err error) { *of(v), err = read(text); return err },
		Get: func(v model.VirtualService) string { return string(*of(&v)) }, Clear: zero(of)}
}

// counted is a field that is a number.
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

// timed is a field that is a time.
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

// ParseTime reads a time with its unit, also in days: 500ms, 2s, 5m, 30d, 1d12h.
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

// FormatTime writes a time without parts that are zero, and nothing for none.
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

// worded is a field that is any word.
func worded(name, value, help string, of func(*model.VirtualService) *string) ServiceField {
	return ServiceField{Name: name, Flag: name, Value: value, Help: help,
		Set: func(v *model.VirtualService, text string) error { *of(v) = text; return nil },
		Get: func(v model.VirtualService) string { return *of(&v) }, Clear: zero(of)}
}

// decided is a field that is true or false.
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

// as gives a field another flag than its name.
func (f ServiceField) as(flag string) ServiceField {
	f.Flag = flag
	return f
}

// ServiceFields are the choices of a service but for its addresses, its real
// servers and its check.
func ServiceFields() []ServiceField {
	return []ServiceField{
		worded("interface", "LINK", "the host's link that the addresses are put on; without, others see to it that they come here (forward local: lo)", func(v *model.VirtualService) *string { return &v.Interface }),
		chosen("scheduler", "how a real server is chosen", Schedulers, func(v *model.VirtualService) *model.Scheduler { return &v.Scheduler }),
		chosen("forward", "how packets are sent on, local for not at all: this host is a real server of a service that another balances", Forwards, func(v *model.VirtualService) *model.Forward { return &v.Forward }),
		tunnel(),
		chosen("plane", "what balances", Planes, func(v *model.VirtualService) *model.Plane { return &v.Plane }),
		chosen("source-nat", "whose address real servers see, forwarding by nat", SourceNATs, func(v *model.VirtualService) *model.SourceNAT { return &v.SourceNAT }),
		timed("persistence", "how long a client stays with its real server after its last new flow", func(v *model.VirtualService) *time.Duration { return &v.Persistence }),
		sorry(),
		counted("quorum", "NUMBER", "how many real servers must be up (default 1)", func(v *model.VirtualService) *int { return &v.Quorum }).positive(),
		counted("panic", "PERCENT", "use all real servers when fewer of them are up", func(v *model.VirtualService) *int { return &v.Panic }),
		timed("drain", "how long a real server that leaves may keep its flows (default: until they end)", func(v *model.VirtualService) *time.Duration { return &v.Drain }).positive(),
	}
}

func sorry() ServiceField {
	return ServiceField{Name: "sorry", Flag: "sorry", Value: "ADDRESS[:PORT]", Help: "where clients are sent while fewer than the quorum are up",
		Set: func(v *model.VirtualService, text string) (err error) { v.Sorry, err = Sorry(text); return err },
		Get: func(v model.VirtualService) string {
			if v.Sorry == (netip.AddrPort{}) {
				return ""
			}
			return FormatSorry(v.Sorry)
		}}
}

// CheckFields are the choices of a service's check, but for its command.
func CheckFields() []ServiceField {
	return append([]ServiceField{
		chosen("type", "how real servers are checked", Checks, func(v *model.VirtualService) *model.CheckType { return &v.Check.Type }).as("check"),
		counted("port", "PORT", "port to check, instead of the real server's own", func(v *model.VirtualService) *uint16 { return &v.Check.Port }).as("check-port"),
		timed("interval", "time between checks (default 2s)", func(v *model.VirtualService) *time.Duration { return &v.Check.Interval }).positive(),
		timed("fast", "time between checks while a state is changing (default: the interval) or one is unanswered (default: a quarter of the timeout)", func(v *model.VirtualService) *time.Duration { return &v.Check.Fast }).positive().as("fast-interval"),
		timed("down", "time between checks of a server that is down", func(v *model.VirtualService) *time.Duration { return &v.Check.Down }).positive().as("down-interval"),
		timed("timeout", "how long a check may take (default: the interval, at most 5s)", func(v *model.VirtualService) *time.Duration { return &v.Check.Timeout }).positive(),
		counted("rise", "NUMBER", "checks in a row that make a server up (default 2)", func(v *model.VirtualService) *int { return &v.Check.Rise }).positive(),
		counted("fall", "NUMBER", "checks in a row that make a server down (default 3)", func(v *model.VirtualService) *int { return &v.Check.Fall }).positive(),
		jitter(),
		chosen("initial", "what a server is taken for until it is checked", []string{string(model.InitialUp), string(model.InitialDown)}, func(v *model.VirtualService) *model.Initial { return &v.Check.Initial }),
		timed("slow-start", "how long a server's weight grows after a failure", func(v *model.VirtualService) *time.Duration { return &v.Check.SlowStart }),
		counted("agent", "PORT", "port of an agent that says what weight the server wants (HAProxy's agent-check)", func(v *model.VirtualService) *uint16 { return &v.Check.Agent }),
		decided("passive", "take a server out when clients' connections to it fail", func(v *model.VirtualService) *bool { return &v.Check.Passive }),
	}, ofTypes()...)
}

// jitter is a number of which 0 is none, and no default.
func jitter() ServiceField {
	f := counted("jitter", "PERCENT", "spread checks by so much of the interval (default 10; 0 for none)", func(v *model.VirtualService) *int { return &v.Check.Jitter })
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

// TypedCheck refuses a check that is said how to make and not what: nobody would
// make it. Clients' connections and an agent say something without one. It also
// refuses fields that the check does not use.
func TypedCheck(c model.Check) error {
	if c.Type == "" && !c.Passive && c.Agent == 0 && !c.IsZero() {
		return fmt.Errorf("type: want one of %s", strings.Join(Checks, ", "))
	}
	if all := Unused(c); len(all) > 0 {
		return fmt.Errorf("%s: only checks by %s use it, and this one does not", all[0].Name, all[0].users)
	}
	if len(c.Command) > 0 && c.Type != model.CheckExec && c.Type != model.CheckNone {
		return errors.New("command: only checks by exec use it, and this one does not")
	}
	return nil
}

// Unused returns the fields that are set and that the check does not use. One that
// is switched off keeps all of them.
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

// by makes a field one of some types of check.
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

// bySecure makes a field one of checks that speak TLS.
func bySecure(fields ...ServiceField) []ServiceField {
	for i := range fields {
		fields[i].users = "https, or by tcp or grpc with tls,"
		fields[i].used = func(c model.Check) bool {
			return c.Type == model.CheckHTTPS || c.TLS && (c.Type == model.CheckTCP || c.Type == model.CheckGRPC)
		}
	}
	return fields
}

// ofTypes are the fields of some types of check.
func ofTypes() []ServiceField {
	all := slices.Concat(
		by([]model.CheckType{model.CheckHTTP, model.CheckHTTPS},
			worded("method", "METHOD", "http: request method (default GET)", func(v *model.VirtualService) *string { return &v.Check.Method }),
			worded("path", "PATH", "http: what is asked for (default /)", func(v *model.VirtualService) *string { return &v.Check.Path }),
			worded("host", "NAME", "http: the host's name (default: the server's address)", func(v *model.VirtualService) *string { return &v.Check.Host }),
			worded("status", "CODES", "http: the status that is well (default 200-399)", func(v *model.VirtualService) *string { return &v.Check.Status }),
			worded("body", "REGEXP", "http: what the body must hold", func(v *model.VirtualService) *string { return &v.Check.Body })),
		by([]model.CheckType{model.CheckTCP, model.CheckGRPC, model.CheckHTTPS},
			decided("tls", "tcp, grpc: speak TLS, as https does", func(v *model.VirtualService) *bool { return &v.Check.TLS })),
		bySecure(
			worded("tls-name", "NAME", "https, or with tls: verify that the server's certificate is valid for this name; if empty, the certificate is not verified", func(v *model.VirtualService) *string { return &v.Check.TLSName }),
			timed("expiry", "https, or with tls: fail a certificate that has less left", func(v *model.VirtualService) *time.Duration { return &v.Check.Expiry })),
		by([]model.CheckType{model.CheckGRPC},
			worded("service", "NAME", "grpc: the service that is asked about", func(v *model.VirtualService) *string { return &v.Check.Service })),
		by([]model.CheckType{model.CheckDNS},
			worded("query", "NAME", "dns: the name that is asked for", func(v *model.VirtualService) *string { return &v.Check.Query }),
			worded("record", "TYPE", "dns: the record that is asked for (default A)", func(v *model.VirtualService) *string { return &v.Check.Record })),
		by([]model.CheckType{model.CheckTCP, model.CheckUDP},
			worded("send", "TEXT", "tcp, udp: what is sent", func(v *model.VirtualService) *string { return &v.Check.Send }),
			worded("expect", "REGEXP", "tcp, udp: what the answer must hold", func(v *model.VirtualService) *string { return &v.Check.Expect })),
	)
	for i := range all {
		all[i].Flag = "check-" + all[i].Name
	}
	return all
}
