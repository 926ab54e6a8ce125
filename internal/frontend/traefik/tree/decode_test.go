package tree

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead/internal/model/gateway"
)

// decodePairs decodes lines KEY=VALUE into a value of type T, and returns the mistakes
// as texts.
func decodePairs[T any](t *testing.T, lines ...string) (T, []string) {
	t.Helper()
	var pairs []Pair
	for _, line := range lines {
		key, value, _ := strings.Cut(line, "=")
		pairs = append(pairs, Pair{key, value})
	}
	root, mistakes := FromPairs(pairs)
	var got T
	mistakes = append(mistakes, Decode(root, "", &got)...)
	return got, texts(mistakes)
}

func texts(mistakes []Mistake) (found []string) {
	for _, m := range mistakes {
		found = append(found, m.Error())
	}
	return found
}

func ptr[T any](v T) *T { return &v }

func TestDecodeValues(t *testing.T) {
	type values struct {
		Name   string
		On     *bool
		Count  *int64
		Wait   time.Duration
		Steps  []float64
		Names  []string
		Header map[string]string
		Plugin map[string]map[string]string
		Router *gateway.RouterTLS
		Stream *gateway.TCPRouterTLS
		Health *struct{}
		Retry  gateway.Retry
		Many   map[string]*gateway.Router
	}
	for name, tt := range map[string]struct {
		lines []string
		want  values
	}{
		"names ignore case": {[]string{"NAME=a", "retry.AttEmpts=3"},
			values{Name: "a", Retry: gateway.Retry{Attempts: 3}}},
		"pointers":                {[]string{"on=false", "count=0"}, values{On: ptr(false), Count: ptr(int64(0))}},
		"bare integer is seconds": {[]string{"wait=90"}, values{Wait: 90 * time.Second}},
		"duration":                {[]string{"wait=1m500ms"}, values{Wait: time.Minute + 500*time.Millisecond}},
		"lists": {[]string{"names=a, b ,c", "steps=0.1,5"},
			values{Names: []string{"a", "b", "c"}, Steps: []float64{0.1, 5}}},
		"repeated list": {[]string{"names=a,b", "names=c"},
			values{Names: []string{"a", "b", "c"}}},
		"empty list": {[]string{"names="}, values{}},
		"names of a map keep their case, and dots": {[]string{"header.X-Test=1", "header.a.B=2"},
			values{Header: map[string]string{"X-Test": "1", "a.B": "2"}}},
		"map of maps": {[]string{"plugin.Geo.Lists.deny[0]=x"},
			values{Plugin: map[string]map[string]string{"Geo": {"Lists.deny[0]": "x"}}}},
		"true alone": {[]string{"router=true", "health=true"},
			values{Router: &gateway.RouterTLS{}, Health: &struct{}{}}},
		"an empty value":       {[]string{"router="}, values{Router: &gateway.RouterTLS{}}},
		"false beats the rest": {[]string{"router=false", "router.certresolver=le"}, values{}},
		"fields of an embedded struct": {[]string{"stream.certresolver=le", "stream.passthrough=true"},
			values{Stream: &gateway.TCPRouterTLS{RouterTLS: gateway.RouterTLS{CertResolver: "le"}, Passthrough: true}}},
		"index 10 precedes index 2": {[]string{"router.domains[2].main=two", "router.domains[10].main=ten",
			"router.domains[2].sans=a,b"}, values{Router: &gateway.RouterTLS{Domains: []gateway.Domain{{Main: "ten"},
			{Main: "two", SANs: []string{"a", "b"}}}}}},
		"a map of pointers": {[]string{"many.Web.rule=r", "many.web.priority=3", "many.off=false"},
			values{Many: map[string]*gateway.Router{"Web": {Rule: "r", Priority: 3}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, mistakes := decodePairs[values](t, tt.lines...)
			if len(mistakes) > 0 {
				t.Errorf("mistakes: %q", mistakes)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecodeMistakes(t *testing.T) {
	for line, want := range map[string]string{
		"rul=x":           `rul: the key "rul" is not known: the nearest one is "rule"`,
		"entrypiont=x":    `entrypiont: the key "entrypiont" is not known: the nearest one is "entrypoints"`,
		"tls.domain[0]=x": `tls.domain: the key "domain" is not known: the nearest one is "domains"`,
		"tls.zzz=x":       `tls.zzz: the key "zzz" is not known: want one of certresolver, domains, options`,
		"tls=yes": `tls: value "yes": want true, false, or names below it: ` +
			"certresolver, domains, options",
		"tls.domains=a.org":        `tls.domains: value "a.org": want the elements of the list: tls.domains[0].main`,
		"tls.domains.main=a.org":   "tls.domains.main: tls.domains is a list: write tls.domains[0].main",
		"priority=high":            `priority: value "high": want an integer`,
		"priority=":                `priority: value "": want an integer`,
		"rule.x=y":                 `rule.x: rule has one value and no names below it: leave out "x"`,
		"entrypoints.web=1":        "entrypoints.web: entrypoints is a list: want entrypoints=VALUE,VALUE",
		"tls..options=x":           "tls..options: a name between two dots is empty: remove the dot that is too much",
		"[0].rule=x":               `[0].rule: "[0]" has no name before its index: write NAME[0]`,
		"rule]=x":                  `rule]: "rule]" has no "[" for its "]"`,
		"observability.metrics=on": `observability.metrics: value "on": want true or false`,
	} {
		_, mistakes := decodePairs[gateway.Router](t, line)
		if !cmp.Equal(mistakes, []string{want}) {
			t.Errorf("%s: mistakes %q, want %q", line, mistakes, want)
		}
	}
	for line, want := range map[string]string{
		"routers=web": "routers: value \"web\": want a name of your choice below it, such as routers.NAME",
		"services.a.loadbalancer.servers[0]=http://a": `services.a.loadbalancer.servers[0]: value "http://a": ` +
			"want names below it: fenced, port, preservepath, scheme, url, weight",
		"services.a.failover.healthcheck=maybe": `services.a.failover.healthcheck: value "maybe": ` +
			"want true, false, or names below it: it has none",
		"middlewares.a.errors.statusrewrites.404=x": `middlewares.a.errors.statusrewrites.404: value "x": want an integer`,
	} {
		if _, mistakes := decodePairs[gateway.HTTP](t, line); !cmp.Equal(mistakes, []string{want}) {
			t.Errorf("%s: mistakes %q, want %q", line, mistakes, want)
		}
	}
	if _, mistakes := decodePairs[gateway.PassiveHealthCheck](t, "failurewindow=soon"); !cmp.Equal(mistakes,
		[]string{`failurewindow: value "soon": want a duration such as 10s or 500ms; an integer means seconds`}) {
		t.Errorf("a wrong duration: mistakes %q", mistakes)
	}
}

// TestDecodeIndexless checks that a list without an index is in effect, with a warning.
func TestDecodeIndexless(t *testing.T) {
	root, _ := FromPairs([]Pair{{"domains.main", "a.org"}, {"domains.sans", "b.org,c.org"}})
	var got gateway.RouterTLS
	mistakes := Decode(root, "", &got)
	want := []gateway.Domain{{Main: "a.org", SANs: []string{"b.org", "c.org"}}}
	if diff := cmp.Diff(want, got.Domains); diff != "" {
		t.Error(diff)
	}
	if len(mistakes) != 1 || !mistakes[0].Warning {
		t.Errorf("mistakes %+v, want one warning", mistakes)
	}
}

const yamlText = `
common: &common
  passHostHeader: false
  strategy: wrr
http:
  routers:
    Web:
      entryPoints: [web, "a,b"]
      tls: {}
      service:
      priority: 0x10
  services:
    web:
      loadBalancer:
        strategy: p2c
        <<: *common
        servers:
          - url: http://a
            weight: 2
          - url: http://b
`

const tomlText = `
[http.routers.Web]
entryPoints = ["web", "a,b"]
priority = 16
[http.routers.Web.tls]
[http.services.web.loadBalancer]
passHostHeader = false
strategy = "p2c"
[[http.services.web.loadBalancer.servers]]
url = "http://a"
weight = 2
[[http.services.web.loadBalancer.servers]]
url = "http://b"
`

func TestDecodeFiles(t *testing.T) {
	want := gateway.HTTP{
		Routers: map[string]*gateway.Router{"Web": {EntryPoints: []string{"web", "a,b"}, TLS: &gateway.RouterTLS{},
			Priority: 16}},
		Services: map[string]*gateway.Service{"web": {LoadBalancer: &gateway.LoadBalancer{
			Servers:  []gateway.Server{{URL: "http://a", Weight: ptr(2)}, {URL: "http://b"}},
			Strategy: "p2c", PassHostHeader: ptr(false)}}},
	}
	for name, parse := range map[string]func() (*Node, error){
		"YAML": func() (*Node, error) { return YAML([]byte(yamlText)) },
		"TOML": func() (*Node, error) { return TOML([]byte(tomlText)) },
	} {
		root, err := parse()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got gateway.HTTP
		if mistakes := Decode(root.Child("http"), "http", &got); len(mistakes) > 0 {
			t.Errorf("%s: mistakes %q", name, texts(mistakes))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestFilesWithMistakes(t *testing.T) {
	root, err := YAML([]byte("routers:\n  web:\n    rule: a\n    Rule: b\n    rulle: c\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got gateway.HTTP
	want := []string{`line 4: routers.web.Rule: the key is given twice, as "rule" and "Rule": leave one out`,
		`line 5: routers.web.rulle: the key "rulle" is not known: the nearest one is "rule"`}
	if diff := cmp.Diff(want, texts(Decode(root, "", &got))); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{"a: [": "line 1", "- a\n": "line 1", "a: *b": "unknown anchor"} {
		if _, err := YAML([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("YAML %q: error %v, want %q in it", text, err, want)
		}
	}
	if _, err := TOML([]byte("a = 1\nb = [\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("TOML: error %v", err)
	}
	if root, err := YAML([]byte("# nothing\n")); err != nil || len(root.Children) > 0 {
		t.Errorf("an empty YAML text gives %+v, %v", root, err)
	}
}
