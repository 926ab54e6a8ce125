package syntax

import (
	"fmt"
	"net/netip"
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
	return ServiceField{Name: name, Flag: name, Value: strings.ToUpper(name), Help: help + ": " +
		strings.Join(words, ", "), Words: words,
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
		chosen("source-nat", "with forward nat: source address that real servers see, the client's (routed) or the "+
			"host's (masqueraded); auto, the default, uses the client's for sandboxes of this host only", SourceNATs, func(v *model.VirtualService) *model.SourceNAT { return &v.SourceNAT }),
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
