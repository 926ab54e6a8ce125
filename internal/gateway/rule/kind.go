package rule

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/similar"
)

// kind is a matcher's name, its arguments, and how they become tests.
type kind struct {
	name string
	// min and max are the number of arguments. A max of 0 means no limit.
	min, max int
	// pairs says that the arguments are pairs of a name and a value.
	pairs bool
	// templates says that an argument with {name in it belongs to v2.
	templates bool
	build     func(args []string) ([]test, error)
}

// matcherSet has the matchers of a syntax for HTTP or for TCP.
type matcherSet struct {
	syntax string
	tcp    bool
	kinds  []*kind
}

type setKey struct {
	syntax string
	tcp    bool
}

// sets has Traefik's matchers, v2.11 and v3.7.
var sets = map[setKey]*matcherSet{
	{"v3", false}: {"v3", false, []*kind{
		{name: "Host", min: 1, max: 1, templates: true, build: hostV3},
		{name: "HostRegexp", min: 1, max: 1, templates: true, build: hostRegexpV3},
		{name: "Path", min: 1, max: 1, templates: true, build: pathV3(equal)},
		{name: "PathPrefix", min: 1, max: 1, templates: true, build: pathV3(prefix)},
		{name: "PathRegexp", min: 1, max: 1, build: pathRegexp},
		{name: "Header", min: 2, max: 2, build: headers},
		{name: "HeaderRegexp", min: 2, max: 2, build: headersRegexp},
		{name: "Query", min: 1, max: 2, build: queryV3},
		{name: "QueryRegexp", min: 1, max: 2, build: queryRegexp},
		{name: "Method", min: 1, max: 1, build: method},
		{name: "ClientIP", min: 1, max: 1, build: clientIP},
	}},
	{"v2", false}: {"v2", false, []*kind{
		{name: "Host", min: 1, build: hostV2},
		{name: "HostHeader", min: 1, build: hostV2},
		{name: "HostRegexp", min: 1, build: hostRegexpV2},
		{name: "Path", min: 1, build: pathV2(equal)},
		{name: "PathPrefix", min: 1, build: pathV2(prefix)},
		{name: "Headers", min: 2, pairs: true, build: headers},
		{name: "HeadersRegexp", min: 2, pairs: true, build: headersRegexp},
		{name: "Query", min: 1, build: queryV2},
		{name: "Method", min: 1, build: method},
		{name: "ClientIP", min: 1, build: clientIP},
	}},
	{"v3", true}: {"v3", true, []*kind{
		{name: "HostSNI", min: 1, max: 1, build: hostSNIV3},
		{name: "HostSNIRegexp", min: 1, max: 1, templates: true, build: hostRegexpV3},
		{name: "ClientIP", min: 1, max: 1, build: clientIP},
		{name: "ALPN", min: 1, max: 1, build: alpn},
	}},
	{"v2", true}: {"v2", true, []*kind{
		{name: "HostSNI", min: 1, build: hostSNIV2},
		{name: "HostSNIRegexp", min: 1, build: hostRegexpV2},
		{name: "ClientIP", min: 1, build: clientIP},
		{name: "ALPN", min: 1, build: alpn},
	}},
}

// find returns the kind with the name in one of the four casings that Traefik accepts:
// as in its documentation, lower case, upper case, and with the first letter only in
// upper case.
func (s *matcherSet) find(name string) (*kind, error) {
	var names []string
	for _, k := range s.kinds {
		if slices.Contains(casings(k.name), name) {
			return k, nil
		}
		names = append(names, k.name)
	}
	other := sets[setKey{map[string]string{"v2": "v3", "v3": "v2"}[s.syntax], s.tcp}]
	for _, k := range other.kinds {
		if slices.Contains(casings(k.name), name) {
			return nil, fmt.Errorf("%s is a matcher of the syntax %s: set ruleSyntax to %s, or use one of %s: %s",
				k.name, other.syntax, other.syntax, s.syntax, list(names))
		}
	}
	for _, k := range sets[setKey{s.syntax, !s.tcp}].kinds {
		if slices.Contains(casings(k.name), name) {
			return nil, fmt.Errorf("%s is a matcher of %s routers: use one of %s routers: %s",
				k.name, routers(!s.tcp), routers(s.tcp), list(names))
		}
	}
	if near, ok := similar.Nearest(name, names); ok {
		return nil, fmt.Errorf("unknown matcher %s: did you mean %s? The matchers of %s are %s",
			name, near, s.syntax, list(names))
	}
	return nil, fmt.Errorf("unknown matcher %s: the matchers of %s are %s", name, s.syntax, list(names))
}

func routers(tcp bool) string {
	if tcp {
		return "TCP"
	}
	return "HTTP"
}

func casings(name string) []string {
	lower := strings.ToLower(name)
	return []string{name, lower, strings.ToUpper(name), strings.ToUpper(lower[:1]) + lower[1:]}
}

// check returns an error if the matcher does not take n arguments.
func (k *kind) check(n int, syntax string) error {
	want := ""
	switch {
	case k.pairs && (n < 2 || n%2 != 0):
		want = "pairs of a name and a value"
	case n >= k.min && (k.max == 0 || n <= k.max):
		return nil
	case k.max == 0:
		want = "at least 1 argument"
	case k.min < k.max:
		want = fmt.Sprintf("%d or %d arguments", k.min, k.max)
	case k.max == 1:
		want = "1 argument"
	default:
		want = fmt.Sprintf("%d arguments", k.max)
	}
	hint := ""
	if k.max == 1 && n > 1 {
		hint = fmt.Sprintf(": write %[1]s(`a`) || %[1]s(`b`)", k.name)
	}
	return fmt.Errorf("%s takes %s in %s, got %d%s", k.name, want, syntax, n, hint)
}
