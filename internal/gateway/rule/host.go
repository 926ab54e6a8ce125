package rule

import (
	"net/netip"
	"regexp"
	"strings"
)

// hostV3 takes a name, *.NAME for one more label, or * for all hosts.
func hostV3(args []string) ([]test, error) { return hosts(args, true) }

// hostV2 takes names only.
func hostV2(args []string) ([]test, error) { return hosts(args, false) }

func hosts(args []string, wildcards bool) ([]test, error) {
	t := test{subject: ofHost}
	for i, a := range args {
		if err := checkASCII(i, a); err != nil {
			return nil, err
		}
		text := CanonicalHost(a)
		v := value{how: equal, text: text}
		switch {
		case wildcards && a == "*":
			v = value{how: always}
		case wildcards && strings.HasPrefix(text, "*."):
			v = value{how: wildcard, text: text[1:]}
		}
		t.values = append(t.values, v)
	}
	return []test{t}, nil
}

// hostSNIV3 takes what hostV3 takes; * also matches connections without a server name.
func hostSNIV3(args []string) ([]test, error) {
	if err := checkServerNames(args, true); err != nil {
		return nil, err
	}
	return hosts(args, true)
}

// hostSNIV2 takes names, and * for all connections.
func hostSNIV2(args []string) ([]test, error) {
	if err := checkServerNames(args, false); err != nil {
		return nil, err
	}
	tests, err := hosts(args, false)
	for i, a := range args {
		if err == nil && a == "*" {
			tests[0].values[i] = value{how: always}
		}
	}
	return tests, err
}

var serverName = regexp.MustCompile(`^(\*\.)?[\w.:-]+$`)

func checkServerNames(args []string, wildcards bool) error {
	for i, a := range args {
		if err := checkASCII(i, a); err != nil {
			return err
		}
		if a != "*" && (!serverName.MatchString(a) || !wildcards && strings.HasPrefix(a, "*")) {
			return badArgument(i, "%q is no host name", a)
		}
	}
	return nil
}

// hostRegexpV3 takes an unanchored regular expression.
func hostRegexpV3(args []string) ([]test, error) {
	if err := checkASCII(0, args[0]); err != nil {
		return nil, err
	}
	v, err := regexpValue(0, args[0])
	return []test{{subject: ofHost, values: []value{v}}}, err
}

// hostRegexpV2 takes templates: an argument without braces is a name.
func hostRegexpV2(args []string) ([]test, error) {
	t := test{subject: ofHost}
	for i, a := range args {
		if err := checkASCII(i, a); err != nil {
			return nil, err
		}
		v, err := templateValue(i, a, "[^.]+", equal)
		if err != nil {
			return nil, err
		}
		if v.how == equal {
			v.text = strings.ToLower(v.text)
		} else {
			v.text = "(?i)" + v.text
		}
		t.values = append(t.values, v)
	}
	return []test{t}, nil
}

func checkASCII(index int, text string) error {
	for i := range len(text) {
		if text[i] >= 0x80 {
			return badArgument(index, "%q is not ASCII: write the name as in DNS, with labels such as xn--bcher-kva",
				text)
		}
	}
	return nil
}

// isHost reports whether a request can have the text as its host.
func isHost(text string) bool {
	if strings.Contains(text, ":") {
		_, err := netip.ParseAddr(text)
		return err == nil
	}
	for i := range len(text) {
		c := text[i]
		if !isLetter(c) && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return text != ""
}

// CanonicalHost returns the form in which hosts and server names are compared: in lower case,
// without a trailing dot, an IPv6 address without brackets and in the text form of RFC 5952.
// International names are A-labels (RFC 5890) in rules, requests and handshakes alike.
func CanonicalHost(name string) string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if strings.Contains(name, ":") {
		bare := strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
		if ip, err := netip.ParseAddr(bare); err == nil {
			return ip.String()
		}
	}
	return name
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
