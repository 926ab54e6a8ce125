package differential_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// generator makes batches of configurations and requests from a seed.
type generator struct{ *rand.Rand }

// flagSets are the options of entry points, with the name of the batch.
var flagSets = []struct {
	name  string
	flags []string
}{
	{"default", nil},
	{"insecure", []string{"--entrypoints.web.forwardedheaders.insecure"}},
	{"trusted", []string{"--entrypoints.web.forwardedheaders.trustedips=127.0.0.0/8",
		"--entrypoints.web.forwardedheaders.connection=X-Hop"}},
	{"not appended", []string{"--entrypoints.web.forwardedheaders.notappendxforwardedfor"}},
	{"not sanitized", []string{"--entrypoints.web.http.sanitizepath=false"}},
	{"semicolons", []string{"--entrypoints.web.http.encodequerysemicolons"}},
	{"middlewares", []string{"--entrypoints.web.http.middlewares=entry@file"}},
	{"redirected", []string{"--entrypoints.other.http.redirections.entrypoint.to=:443",
		"--entrypoints.other.http.redirections.entrypoint.permanent=false"}},
	{"encoded characters", []string{"--entrypoints.web.http.encodedcharacters.allowencodedslash",
		"--entrypoints.web.http.encodedcharacters.allowencodedhash=false"}},
	{"v2", []string{"--core.defaultrulesyntax=v2"}},
}

// perRouter is how many requests a router gets.
const perRouter = 5

// generate returns batches with about as many requests as asked for, over all flag sets.
func generate(seed uint64, requests int) (all []batch) {
	g := &generator{rand.New(rand.NewPCG(seed, 27))}
	routers := max(requests/len(flagSets)/perRouter, 1)
	first := 0
	for _, set := range flagSets {
		all = append(all, g.batch(set.name, set.flags, first, routers))
		first += routers
	}
	return all
}

// pick returns one of the values.
func pick[T any](g *generator, values []T) T { return values[g.IntN(len(values))] }

// maybe reports true in one of n cases.
func (g *generator) maybe(n int) bool { return g.IntN(n) == 0 }

func (g *generator) batch(name string, flags []string, first, routers int) batch {
	values := middlewareValues()
	middlewares := obj{"entry": obj{"headers": obj{"customResponseHeaders": obj{"X-Entry": "1"}}}}
	for i, v := range values {
		middlewares[fmt.Sprintf("m%d", i)] = v
	}
	b := batch{Name: name, Flags: flags}
	all := obj{"sentinel": obj{"rule": "Host(`sentinel.test`)", "service": "page"}}
	v2 := name == "v2"
	for i := range routers {
		n := first + i
		host := fmt.Sprintf("r%d.test", n)
		service := serviceNames[(n*7)%len(serviceNames)]
		chosen := []string{fmt.Sprintf("m%d", n%len(values))}
		if g.maybe(3) {
			chosen = append(chosen, fmt.Sprintf("m%d", g.IntN(len(values))))
		}
		rule := g.rule(host, v2)
		r := obj{"rule": rule, "service": service, "middlewares": chosen, "entryPoints": []string{"web"}}
		if g.maybe(4) {
			r["priority"] = 1000 + n
		}
		if g.maybe(3) {
			delete(r, "entryPoints")
		}
		all[fmt.Sprintf("r%d", n)] = r
		for k := range perRouter {
			q := g.request(fmt.Sprintf("%d.%d", n, k), host)
			if name == "redirected" && g.maybe(2) {
				q.Entry = "8001"
			}
			if service == "mirrored" && !hasLine(q.Header, "Upgrade:") {
				q.Servers = 2
			}
			b.Requests = append(b.Requests, q)
		}
	}
	b.Dynamic = obj{"http": obj{"routers": all, "middlewares": middlewares, "services": serviceValues(),
		"serversTransports": obj{"lax": obj{"insecureSkipVerify": true}}}}
	return b
}

// serviceNames are the services that routers use.
var serviceNames = []string{"one", "two", "sticky", "host", "secure", "dead", "empty", "path", "preserved",
	"weighted",
	"weighted-sticky", "mirrored", "failing", "p2c", "hrw", "absent", "flushed", "rendezvous"}

func servers(urls ...string) []obj {
	var all []obj
	for _, u := range urls {
		all = append(all, obj{"url": u})
	}
	return all
}

func balanced(options obj, urls ...string) obj {
	options["servers"] = servers(urls...)
	return obj{"loadBalancer": options}
}

// serviceValues are all services of the generated configurations.
func serviceValues() obj {
	const one, two = "http://127.0.0.1:9001", "http://127.0.0.1:9002"
	preserved := balanced(obj{})
	preserved["loadBalancer"].(obj)["servers"] = []obj{{"url": one + "/base", "preservePath": true}}
	parts := []obj{{"name": "one", "weight": 1}, {"name": "other", "weight": 1}}
	return obj{
		"page": balanced(obj{}, "http://127.0.0.1:9004"), "other": balanced(obj{}, two), "one": balanced(obj{}, one),
		"two":       balanced(obj{}, one, two),
		"sticky":    balanced(obj{"sticky": obj{"cookie": obj{"name": "lb", "httpOnly": true}}}, one, two),
		"host":      balanced(obj{"passHostHeader": false}, one),
		"secure":    balanced(obj{"serversTransport": "lax"}, "https://127.0.0.1:9443"),
		"dead":      balanced(obj{}, "http://127.0.0.1:9999"),
		"empty":     balanced(obj{"passHostHeader": true}),
		"path":      balanced(obj{}, one+"/base"),
		"preserved": preserved,
		"weighted":  obj{"weighted": obj{"services": parts}},
		"weighted-sticky": obj{"weighted": obj{"services": parts,
			"sticky": obj{"cookie": obj{"name": "wk", "secure": true, "sameSite": "strict", "maxAge": 60}}}},
		"mirrored": obj{"mirroring": obj{"service": "one", "mirrors": []obj{{"name": "other", "percent": 100}}}},
		"failing":  obj{"failover": obj{"service": "checked", "fallback": "other"}},
		"checked":  balanced(obj{"healthCheck": obj{"path": "/health", "interval": "1h"}}, one),
		"p2c":      balanced(obj{"strategy": "p2c"}, one, two), "hrw": balanced(obj{"strategy": "hrw"}, one, two),
		"flushed":    balanced(obj{"responseForwarding": obj{"flushInterval": "1ms"}}, one),
		"rendezvous": obj{"highestRandomWeight": obj{"services": parts}},
	}
}

// conditions are parts of rules besides the host, in the syntax of v3.
var conditions = []string{"PathPrefix(`/foo`)", "Path(`/foo/bar`)", "PathRegexp(`^/[a-z]+`)", "Method(`GET`)",
	"Method(`post`)", "Header(`X-A`, `1`)", "HeaderRegexp(`X-A`, `^[0-9]+$`)", "Query(`x`, `1`)", "Query(`x`)",
	"QueryRegexp(`x`, `^[0-9]$`)", "ClientIP(`127.0.0.0/8`)", "ClientIP(`10.0.0.1`)", "!Path(`/none`)",
	"PathPrefix(`/`)",
	"(Path(`/`) || PathPrefix(`/foo/`))", "!Method(`DELETE`)", "PathPrefix(`/foo bar`)", "HostRegexp(`^r[0-9]+`)"}

// conditionsV2 are those in the syntax of v2.
var conditionsV2 = []string{"PathPrefix(`/foo`, `/bar`)", "Path(`/{a:[a-z]+}/bar`)", "PathPrefix(`/{a}`)",
	"Method(`GET`, `POST`)", "Headers(`X-A`, `1`)", "HeadersRegexp(`X-A`, `^[0-9]+$`)", "Query(`x=1`)",
	"ClientIP(`127.0.0.0/8`, `::1`)", "HostRegexp(`{a:[a-z0-9]+}.test`)", "!Path(`/none`)"}

// faulty are rules that no router can have.
var faulty = []string{"Host(", "Host(`a`) &&", "Nothing(`a`)", "Path(`foo`)", "PathRegexp(`[`)", "Host()",
	"ClientIP(`x`)"}

func (g *generator) rule(host string, v2 bool) string {
	pool := conditions
	if v2 {
		pool = conditionsV2
	}
	rule := "Host(`" + host + "`)"
	switch g.IntN(12) {
	case 0:
		return pick(g, faulty)
	case 1:
		return "Host(`" + strings.ToUpper(host) + "`)"
	case 2, 3, 4:
		return rule + " && " + pick(g, pool)
	case 5:
		return rule + " && (" + pick(g, pool) + " || " + pick(g, pool) + ")"
	}
	return rule
}
