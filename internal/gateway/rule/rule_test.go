package rule

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// request returns a GET request of https://host/path?query from a client.
func request(host, path, query string) *Request {
	return &Request{Method: "GET", Host: host, Path: path, RawQuery: query, Client: netip.MustParseAddr("192.0.2.7"),
		Header: http.Header{"X-Team": {"red", "blue"}, "Accept": {"text/html"}}}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		rule, syntax, url string
		want              bool
	}{
		{"Host(`shop.example.com`)", "v3", "shop.example.com/", true},
		{"Host(`Shop.Example.COM.`)", "v3", "shop.example.com/", true},
		{"Host(`shop.example.com`)", "v3", "www.shop.example.com/", false},
		{"Host(`shop.example.com`)", "v3", "/", false},
		{"Host(`*.example.com`)", "v3", "a.example.com/", true},
		{"Host(`*.example.com`)", "v3", "a.b.example.com/", false},
		{"Host(`*.example.com`)", "v3", "example.com/", false},
		{"Host(`*`)", "v3", "any/", true},
		{"Host(`*`)", "v3", "/", true},
		{"Host(`*`)", "v2", "any/", false},
		{"Host(`a`, `b`)", "v2", "b/", true},
		{"HostHeader(`a`)", "v2", "a/", true},
		{"Host(`[2001:db8::1]`)", "v3", "2001:db8::1/", true},
		{"HostRegexp(`example`)", "v3", "my.example.com/", true},
		{"HostRegexp(`^example`)", "v3", "my.example.com/", false},
		{"HostRegexp(`example.com`)", "v2", "exampleXcom/", false},
		{"HostRegexp(`example.com`)", "v2", "example.com/", true},
		{"HostRegexp(`example.com`)", "v3", "exampleXcom/", true},
		{"HostRegexp(`{sub:[a-z]+}.Example.com`)", "v2", "my.example.com/", true},
		{"HostRegexp(`{sub:[a-z]+}.example.com`)", "v2", "my2.example.com/", false},
		{"HostRegexp(`{sub:[a-z]+}.example.com`)", "v2", "my.example.com.org/", false},
		{"HostRegexp(`{sub}.example.com`)", "v2", "a.b.example.com/", false},
		{"HostRegexp(`{sub:a{2,3}}.example.com`, `other`)", "v2", "aaa.example.com/", true},
		{"HostRegexp(`{sub:a{2,3}}.example.com`, `other`)", "v2", "other/", true},
		{"Path(`/foo`)", "v3", "a/foo", true},
		{"Path(`/foo`)", "v3", "a/foo/", false},
		{"PathPrefix(`/foo`)", "v3", "a/foobar", true},
		{"PathPrefix(`/foo/`)", "v3", "a/foo", false},
		{"PathPrefix(`/a/b`)", "v3", "a/a%2Fb", false},
		{"PathPrefix(`/a%2fb`)", "v3", "a/a%2Fb", true},
		{"Path(`/foo bar`)", "v3", "a/foo%20bar", true},
		{"Path(`/été`)", "v3", "a/%C3%A9t%C3%A9", true},
		{"PathRegexp(`^/été/\\d+$`)", "v3", "a/%C3%A9t%C3%A9/7", true},
		{"PathRegexp(`b`)", "v3", "a/abc", true},
		{"PathRegexp(`^/a/b`)", "v3", "a/a%2Fb", false},
		{"Path(`/a`, `/b`)", "v2", "a/b", true},
		{"Path(`/users/{id:[0-9]+}`)", "v2", "a/users/42", true},
		{"Path(`/users/{id:[0-9]+}`)", "v2", "a/users/42/x", false},
		{"Path(`/users/{id}`)", "v2", "a/users/4/2", false},
		{"PathPrefix(`/{lang:(?:en|de)}/`)", "v2", "a/de/x", true},
		{"PathPrefix(`/{lang:en|de}`)", "v2", "a/fr", false},
		{"Path(`/x y`, `/{id:[0-9]}`)", "v2", "a/x%20y", true},
		{"Method(`get`)", "v3", "a/", true},
		{"Method(`POST`)", "v3", "a/", false},
		{"Method(`POST`, `GET`)", "v2", "a/", true},
		{"Header(`x-team`, `blue`)", "v3", "a/", true},
		{"Header(`X-Team`, `blu`)", "v3", "a/", false},
		{"HeaderRegexp(`X-Team`, `^b`)", "v3", "a/", true},
		{"HeaderRegexp(`X-None`, `.*`)", "v3", "a/", false},
		{"Headers(`X-Team`, `red`, `Accept`, `text/html`)", "v2", "a/", true},
		{"Headers(`X-Team`, `red`, `Accept`, `text`)", "v2", "a/", false},
		{"HeadersRegexp(`X-Team`, `l.e`)", "v2", "a/", true},
		{"Query(`a`, `1`)", "v3", "a/?a=2&a=1", true},
		{"Query(`a`, `1`)", "v3", "a/?a=2", false},
		{"Query(`a`)", "v3", "a/?a", true},
		{"Query(`a`)", "v3", "a/?a=1", false},
		{"QueryRegexp(`a`, `^[0-9]+$`)", "v3", "a/?a=x&a=12", true},
		{"QueryRegexp(`a`, `^[0-9]+$`)", "v3", "a/?b=12", false},
		{"QueryRegexp(`a`)", "v3", "a/?a=", true},
		{"Query(`a=1`, `b=2`)", "v2", "a/?a=1&b=2", true},
		{"Query(`a=1`, `b=2`)", "v2", "a/?a=1", false},
		{"Query(`a`, `1`, `b=2`)", "v2", "a/?a=1&b=2", true},
		{"Query(`a`, `1`, `b=2`)", "v2", "a/?a=2&b=2", false},
		{"Query(`a=`)", "v2", "a/?a=anything", true},
		{"Query(`a=`)", "v2", "a/?b=1", false},
		{"Query(`a=1`)", "v2", "a/?a=2&a=1", false},
		{"Query(`a={n:[0-9]+}`)", "v2", "a/?a=12", true},
		{"Query(`a={n:[0-9]+}`)", "v2", "a/?a=12x", false},
		{"ClientIP(`192.0.2.7`)", "v3", "a/", true},
		{"ClientIP(`192.0.2.9/24`)", "v3", "a/", true},
		{"ClientIP(`::ffff:192.0.2.7`)", "v3", "a/", true},
		{"ClientIP(`2001:db8::/32`)", "v3", "a/", false},
		{"ClientIP(`10.0.0.0/8`, `192.0.2.7`)", "v2", "a/", true},
		{"Host(`a`) && Path(`/x`) || Host(`b`)", "v3", "b/", true},
		{"Host(`a`) && (Path(`/x`) || Host(`b`))", "v3", "a/", false},
		{"!Host(`a`) && !!Path(`/x`)", "v3", "b/x", true},
		{"!(Host(`a`) && Path(`/x`))", "v3", "a/y", true},
		{"!(Host(`a`) || Path(`/x`))", "v3", "b/x", false},
		{"HOST(\"\\x61\") &&\n\thost(`a`,) && Pathprefix(`/`)", "v3", "a/x", true},
	} {
		r, err := Parse(c.rule, c.syntax)
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
			continue
		}
		host, rest, _ := strings.Cut(c.url, "/")
		path, query, _ := strings.Cut(rest, "?")
		q := request(host, "/"+path, query)
		if got := r.Match(q); got != c.want {
			t.Errorf("%s: %s matches %s: %v, want %v", c.syntax, c.rule, c.url, got, c.want)
		}
		if failures := r.Explain(q); (len(failures) == 0) != c.want {
			t.Errorf("%s: Explain(%s) = %v, want failures: %v", c.rule, c.url, failures, !c.want)
		}
	}
}

func TestMatchTCP(t *testing.T) {
	for _, c := range []struct {
		rule, syntax, name string
		want               bool
	}{
		{"HostSNI(`*`)", "v3", "", true},
		{"HostSNI(`*`)", "v2", "", true},
		{"HostSNI(`db.example.com`)", "v3", "db.example.com", true},
		{"HostSNI(`DB.example.com.`)", "v2", "db.example.com", true},
		{"HostSNI(`*.example.com`)", "v3", "db.example.com", true},
		{"HostSNI(`*.example.com`)", "v3", "", false},
		{"HostSNI(`a`, `b`)", "", "b", true},
		{"HostSNIRegexp(`db`)", "v3", "mydb2", true},
		{"HostSNIRegexp(`{x:[a-z]+}.example.com`)", "", "db.example.com", true},
		{"HostSNIRegexp(`{x:[a-z]+}.example.com`)", "", "db.example.com.org", false},
		{"ALPN(`h2`)", "v3", "", true},
		{"ALPN(`mqtt`)", "v3", "", false},
		{"ClientIP(`192.0.2.0/24`) && !HostSNI(`a`)", "v3", "b", true},
	} {
		r, err := ParseTCP(c.rule, c.syntax)
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
			continue
		}
		q := &Request{Host: c.name, ALPN: []string{"http/1.1", "h2"}, Client: netip.MustParseAddr("192.0.2.7")}
		if got := r.Match(q); got != c.want {
			t.Errorf("%s matches %q: %v, want %v", c.rule, c.name, got, c.want)
		}
	}
}

func TestParseChoosesTheSyntax(t *testing.T) {
	for rule, want := range map[string]string{
		"Host(`a`)":                                    "v3",
		"Host(`a`, `b`)":                               "v2",
		"Headers(`a`, `b`)":                            "v2",
		"Path(`/{id}`)":                                "v2",
		"PathPrefix(`/{id:[0-9]+}`)":                   "v2",
		"Host(`a`) && Query(`a=b`, `c=d`, `e=f`)":      "v2",
		"Host(`a`) && HostRegexp(`{any:.+}`)":          "v2",
		"HostRegexp(`^a{2,3}$`)":                       "v3",
		"HostRegexp(`^\\p{Latin}+$`)":                  "v3",
		"PathRegexp(`/{id}`)":                          "v3",
		"HostRegexp(`p{id:.*}`) || Host(`a`)":          "v2",
		"Host(`a`) && HeaderRegexp(`X-A`, `{a:[b]}`)":  "v3",
		"HostHeader(`a`) && PathPrefix(`/{a:b}`, `/`)": "v2",
	} {
		r, err := Parse(rule, "")
		if err != nil {
			t.Errorf("%s: %v", rule, err)
		} else if r.syntax != want {
			t.Errorf("%s: syntax %s, want %s", rule, r.syntax, want)
		}
	}
}

func TestParseReportsTheColumnAndTheRemedy(t *testing.T) {
	for _, c := range []struct {
		rule, syntax string
		column       int
		problem      string
	}{
		{"", "", 1, "the rule is empty"},
		{"Hots(`a`)", "", 1, "unknown matcher Hots: did you mean Host? The matchers of v3 are Host, HostRegexp"},
		{"hOST(`a`)", "", 1, "did you mean Host?"},
		{"Host(`é`)", "", 6, "is not ASCII: write the name as in DNS"},
		{"PathPrefix(`/é`) && Hoost(`a`)", "", 21, "did you mean Host?"},
		{"Cookie(`a`)", "v2", 1, "unknown matcher Cookie: the matchers of v2 are Host, HostHeader"},
		{"Host(`a`, `b`)", "v3", 1, "Host takes 1 argument in v3, got 2: write Host(`a`) || Host(`b`)"},
		{"Host()", "", 1, "Host takes 1 argument in v3, got 0"},
		{"Query(`a`, `b`, `c`)", "v3", 1, "Query takes 1 or 2 arguments in v3, got 3"},
		{"Header(`a`)", "", 1, "Header takes 2 arguments in v3, got 1"},
		{"Headers(`a`)", "", 1, "Headers takes pairs of a name and a value in v2, got 1"},
		{"Headers(`a`, `b`)", "v3", 1, "Headers is a matcher of the syntax v2: set ruleSyntax to v2"},
		{"HostSNI(`a`)", "", 1, "HostSNI is a matcher of TCP routers"},
		{"Host(``)", "", 6, "the argument is empty"},
		{"Host(`a)", "", 6, "no closing backtick"},
		{"Host(\"a)", "", 6, "no closing double quote"},
		{"Host('a')", "", 6, "not in single quotes"},
		{"Host(a)", "", 6, "unexpected a: want a text in backticks"},
		{"Host(`a` `b`)", "", 10, "unexpected \"`\": want , or )"},
		{"Host(`a`) and Path(`/`)", "", 11, "unexpected and: write &&"},
		{"Host(`a`) & Path(`/`)", "", 11, `unexpected "&": want &&, || or the end`},
		{"Host(`a`) &&", "", 13, "the rule ends too early: want a matcher"},
		{"(Host(`a`)", "", 11, "the rule ends too early: want &&, || or )"},
		{"Host(`a`))", "", 10, `unexpected ")"`},
		{"Host:a", "", 5, `unexpected ":": want ( after Host`},
		{"Path(`a`)", "", 6, "does not begin with a slash"},
		{"PathRegexp(`(`)", "", 12, "missing closing )"},
		{"HeaderRegexp(`a`, `(`)", "", 19, "missing closing )"},
		{"Path(`/{a`)", "v2", 6, "not in pairs"},
		{"Path(`/}`)", "v2", 6, "not in pairs"},
		{"Path(`/{:x}`)", "v2", 6, "without a name or a pattern"},
		{"Query(`a`)", "v2", 7, "write `a=VALUE`, or `a=` for any value"},
		{"ClientIP(`x`)", "", 10, "neither an IP address nor a prefix"},
		{strings.Repeat("!", 200) + "Host(`a`)", "", 101, "nested more than 100 deep"},
	} {
		_, err := Parse(c.rule, c.syntax)
		var fault *Error
		if !errors.As(err, &fault) {
			t.Errorf("%s: error %v, want an *Error", c.rule, err)
		} else if fault.Column != c.column || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %v, want column %d: %s", c.rule, err, c.column, c.problem)
		}
	}
	if _, err := Parse("Host(`a`)", "v4"); err == nil || !strings.Contains(err.Error(), "want v2 or v3") {
		t.Errorf("syntax v4: error %v", err)
	}
	for rule, want := range map[string]string{
		"ALPN(`acme-tls/1`)": "acme-tls/1 is the gateway's own protocol",
		"HostSNI(`a b`)":     `"a b" is no host name`,
		"Host(`a`)":          "Host is a matcher of HTTP routers: use one of TCP routers: HostSNI",
	} {
		if _, err := ParseTCP(rule, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", rule, err, want)
		}
	}
}

func TestPriority(t *testing.T) {
	for _, c := range []struct {
		rule string
		tcp  bool
		want int
	}{
		{"Host(`a`)  && Path(`/é`)", false, 25},
		{"HostSNI(`a`)", true, 12},
		{"hostsni(`*`)", true, -1},
		{"HostSNI(`*`) && ALPN(`h2`)", true, 26},
	} {
		r, err := parseAs(c.rule, "", c.tcp)
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
		} else if got := r.Priority(); got != c.want {
			t.Errorf("%s: priority %d, want %d", c.rule, got, c.want)
		}
	}
}

func TestString(t *testing.T) {
	for rule, want := range map[string]string{
		"HOST( \"a\" )": "Host(`a`)",
		"((Host(`a`) && (Path(`/`) && Path(`/b`))))": "Host(`a`) && Path(`/`) && Path(`/b`)",
		"Host(`a`) && (Host(`b`) || Host(`c`))":      "Host(`a`) && (Host(`b`) || Host(`c`))",
		"(Host(`a`) && Host(`b`)) || Host(`c`)":      "Host(`a`) && Host(`b`) || Host(`c`)",
		"!!(!Host(`a`)) && !(Host(`b`)||Host(`c`))":  "!Host(`a`) && !(Host(`b`) || Host(`c`))",
		"Header(`a`, \"`\\n\")":                      "Header(`a`, \"`\\n\")",
	} {
		r, err := Parse(rule, "")
		if err != nil {
			t.Errorf("%s: %v", rule, err)
		} else if r.String() != want {
			t.Errorf("%s: %s, want %s", rule, r, want)
		}
	}
}

func TestHosts(t *testing.T) {
	for _, c := range []struct {
		rule  string
		hosts []string
		ok    bool
	}{
		{"Host(`a`)", []string{"a"}, true},
		{"Host(`B`, `a`)", []string{"a", "b"}, true},
		{"Host(`a`) && Path(`/`)", []string{"a"}, true},
		{"Path(`/`) && (Host(`a`) || Host(`b`) && Method(`GET`))", []string{"a", "b"}, true},
		{"Host(`a`) || Path(`/`)", nil, false},
		{"Path(`/`)", nil, false},
		{"!Host(`a`)", nil, false},
		{"!(!Host(`a`) || Path(`/`))", []string{"a"}, true},
		{"!(!Host(`a`) && Path(`/`))", nil, false},
		{"Host(`a`, `b`) && Host(`b`, `c`)", []string{"b"}, true},
		{"Host(`a`) && Host(`b`)", nil, true},
		{"Host(`*.a`)", nil, false},
		{"Host(`*.a`) && Host(`b.a`)", []string{"b.a"}, true},
		{"HostRegexp(`a`)", nil, false},
		{"HostRegexp(`a`, `b`)", []string{"a", "b"}, true},
		{"Host(`a`) && !Host(`b`)", []string{"a"}, true},
	} {
		r, err := Parse(c.rule, "")
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
			continue
		}
		if hosts, ok := r.Hosts(); !slices.Equal(hosts, c.hosts) || ok != c.ok {
			t.Errorf("%s: hosts %v, %v, want %v, %v", c.rule, hosts, ok, c.hosts, c.ok)
		}
	}
}

func TestHostPatterns(t *testing.T) {
	for _, c := range []struct {
		rule string
		want []string
		ok   bool
	}{
		{"Host(`B.`) && Path(`/`) || Host(`*.A`)", []string{"*.a", "b"}, true},
		{"Host(`*`)", []string{"*"}, true},
		{"Host(`*`) && Host(`*.a`) && (Host(`x.a`) || Host(`b`))", []string{"x.a"}, true},
		{"Host(`*.a`) && HostRegexp(`x`)", []string{"*.a"}, true},
		{"Host(`*.a`) && Host(`*.b.a`)", nil, true},
		{"Host(`*.a`) && Host(`x.y.a`)", nil, true},
		{"Host(`*.a`) && !Host(`x.a`)", []string{"*.a"}, true},
		{"Host(`[2001:DB8:0::1]`) || Host(`192.0.2.1`) || Host(`a b`)", []string{"192.0.2.1", "2001:db8::1"}, true},
		{"Host(`*.a`) || Path(`/`)", nil, false},
		{"!Host(`*.a`)", nil, false},
		{"HostRegexp(`a`)", nil, false},
	} {
		r, err := Parse(c.rule, "v3")
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
		} else if got, ok := r.HostPatterns(); !slices.Equal(got, c.want) || ok != c.ok {
			t.Errorf("%s: patterns %v, %v, want %v, %v", c.rule, got, ok, c.want, c.ok)
		}
	}
}

func TestDomains(t *testing.T) {
	for rule, want := range map[string][]string{
		"Host(`B`) && Path(`/`) || Host(`a`) || Host(`b`)":        {"b", "a"},
		"Host(`a`) && !Host(`b`)":                                 {"a"},
		"!(Host(`a`) || !Host(`b`))":                              {"b"},
		"Host(`*.a`) || Host(`*`) || Host(`c:80`) || Host(`d e`)": {"*.a"},
		"HostRegexp(`a`)":                                         nil,
	} {
		r, err := Parse(rule, "v3")
		if err != nil {
			t.Errorf("%s: %v", rule, err)
		} else if got := r.Domains(); !slices.Equal(got, want) {
			t.Errorf("%s: domains %v, want %v", rule, got, want)
		}
	}
	if r, err := ParseTCP("HostSNI(`a`) || HostSNI(`*`)", ""); err != nil || !slices.Equal(r.Domains(), []string{"a"}) {
		t.Errorf("domains of a TCP rule: %v, error %v", r.Domains(), err)
	}
}

func TestExplain(t *testing.T) {
	q := request("shop.example.com", "/caf%C3%A9", "a=1&a=2")
	for rule, want := range map[string][]Failure{
		"Host(`a`) && Path(`/caf%C3%A9`) && Method(`POST`)": {{"Host(`a`)", `host "shop.example.com"`},
			{"Method(`POST`)", `method "GET"`}},
		"(Path(`/a`) || PathRegexp(`^/b`)) && !Host(`Shop.example.com`)": {{"Path(`/a`)", `path "/caf%C3%A9"`},
			{"PathRegexp(`^/b`)", `path "/café"`}, {"!Host(`Shop.example.com`)", `host "shop.example.com"`}},
		"!(Method(`GET`) && ClientIP(`192.0.2.7`))": {{"!Method(`GET`)", `method "GET"`},
			{"!ClientIP(`192.0.2.7`)", "client 192.0.2.7"}},
		"Header(`x-team`, `green`)":             {{"Header(`x-team`, `green`)", `header X-Team: "red", "blue"`}},
		"Header(`X-None`, `1`)":                 {{"Header(`X-None`, `1`)", "no header X-None"}},
		"Query(`a`, `3`)":                       {{"Query(`a`, `3`)", `query parameter "a": "1", "2"`}},
		"Host(`a`) || Host(`shop.example.com`)": nil,
	} {
		r, err := Parse(rule, "v3")
		if err != nil {
			t.Errorf("%s: %v", rule, err)
		} else if got := r.Explain(q); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
	r, err := ParseTCP("HostSNI(`a`) && ALPN(`h2`)", "")
	want := []Failure{{"HostSNI(`a`)", "no server name"}, {"ALPN(`h2`)", "no protocol"}}
	if err != nil || !slices.Equal(r.Explain(&Request{}), want) {
		t.Errorf("explain a TCP rule: %q, error %v, want %q", r.Explain(&Request{}), err, want)
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct{ rule, syntax, want string }{
		{"Host(`a:8080`)", "", "Host(`a:8080`) never matches: hosts are compared without their port; write Host(`a`)"},
		{"Host(`https://a/b`)", "", "without a scheme and a path"},
		{"Host(`{sub}.a`)", "", "Host takes no template; use HostRegexp"},
		{"HostHeader(`{sub}.a`)", "v2", "HostHeader takes no template; use HostRegexp"},
		{"Host(`a.*.b`)", "", "a wildcard is * alone, or the whole first label in the syntax v3"},
		{"Host(`*.b`)", "v2", "a wildcard is * alone, or the whole first label in the syntax v3"},
		{"Host(`a b`)", "", `"a b" is no host name`},
		{"Path(`/a?b=c`)", "", "the query is no part of the path"},
		{"Path(`/a#b`)", "", "a request has no fragment"},
		{"PathPrefix(`/a//b`)", "", "without repeated slashes"},
		{"Header(`host`, `a`)", "", "the host is no header here"},
		{"HostRegexp(`^A`)", "", "never matches a letter in upper case"},
		{"Path(`/{id}`)", "v3", "has a template of v2"},
		{"Host(`a`) && Host(`b`)", "", "no host satisfies all of its matchers"},
	} {
		r, err := Parse(c.rule, c.syntax)
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
		} else if got := r.Warnings(); len(got) != 1 || !strings.Contains(got[0], c.want) {
			t.Errorf("%s: warnings %q, want one with %q", c.rule, got, c.want)
		}
	}
	for _, rule := range []string{"Host(`a.example.com`) && PathPrefix(`/.well-known`)", "Host(`*.a`) || Host(`*`)",
		"Host(`2001:db8::1`)", "HostRegexp(`(?i)^A`)", "Path(`/a`, `/{id}`)", "Header(`X-A`, `Host`)"} {
		if r, err := Parse(rule, ""); err != nil || len(r.Warnings()) > 0 {
			t.Errorf("%s: warnings %q, error %v", rule, r.Warnings(), err)
		}
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	header := http.Header{"X-Team": {"red", "blue"}}
	client := netip.MustParseAddr("192.0.2.7")
	for _, text := range []string{"Host(`a.example.com`)", "Host(`*.example.com`)", "Path(`/x%20y`)",
		"PathPrefix(`/x`)",
		"Method(`GET`)", "Header(`X-Team`, `blue`)", "ClientIP(`192.0.2.0/24`)",
		"!(Host(`b`) || Path(`/y`)) && (PathPrefix(`/z`) || Method(`GET`))"} {
		r, err := Parse(text, "v3")
		if err != nil {
			t.Fatal(err)
		}
		allocs := testing.AllocsPerRun(100, func() {
			q := Request{Method: "GET", Host: "a.example.com", Path: "/x%20y", Header: header, Client: client}
			if !r.Match(&q) {
				t.Errorf("%s does not match", text)
			}
		})
		if allocs > 0 {
			t.Errorf("%s: %v allocations, want none", text, allocs)
		}
	}
}
