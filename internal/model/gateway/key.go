package gateway

import (
	"strings"
	"unicode"
)

// Key returns the key of a field, as Traefik's documentation writes it: "TLS" is tls,
// "IPAllowList" is ipAllowList, "SANs" is sans.
func Key(name string) string {
	if rest, found := strings.CutPrefix(name, "IPv"); found {
		return "ipv" + rest
	}
	upper := strings.IndexFunc(name, func(r rune) bool { return !unicode.IsUpper(r) })
	switch {
	case upper < 0 || name[upper:] == "s":
		return strings.ToLower(name)
	case upper > 1 && unicode.IsLower(rune(name[upper])):
		upper-- // the last capital begins the next word
	}
	return strings.ToLower(name[:upper]) + name[upper:]
}
