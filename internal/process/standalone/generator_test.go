package standalone_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/frontend/traefik/static"
	"fairlead/internal/frontend/traefik/tree"
	model "fairlead/internal/model/gateway"
)

// generator makes configurations of random keys and values.
type generator struct {
	random *rand.Rand
	// dynamic are the keys of labels and files, static those of flags: NAME and [n] stand for what is chosen.
	dynamic, static []string
}

func newGenerator() generator {
	g := generator{}
	keys(reflect.TypeFor[model.Config](), "", 0, &g.dynamic)
	g.dynamic = slices.DeleteFunc(g.dynamic, func(key string) bool { return strings.HasPrefix(key, "acme") })
	g.dynamic = append(g.dynamic, "enable", "docker.network", "docker.lbswarm", "docker.allownonrunning",
		"swarm.network")
	keys(reflect.TypeOf(static.Settings(model.Static{})).Elem(), "", 0, &g.static)
	return g
}

// deepest is how many names a key has at most: services and middlewares do not contain each other.
const deepest = 12

// keys appends the keys of a type's values.
func keys(t reflect.Type, key string, depth int, all *[]string) {
	if depth > deepest {
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		if t.Elem().Kind() == reflect.Struct {
			*all = append(*all, key)
		}
		keys(t.Elem(), key, depth, all)
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			if f.IsExported() && !f.Anonymous && f.Tag.Get("declared") == "" {
				keys(f.Type, strings.TrimPrefix(key+"."+strings.ToLower(f.Name), "."), depth+1, all)
			}
		}
	case reflect.Map:
		keys(t.Elem(), key+".NAME", depth+1, all)
	case reflect.Slice:
		*all = append(*all, key)
		keys(t.Elem(), key+"[n]", depth+1, all)
	default:
		*all = append(*all, key)
	}
}

// names are those of objects, indices those of elements.
var (
	names = []string{"a", "a", "a", "b", "default", "A", "a@file", "a@docker", "é", "x y", "0", "NaN",
		strings.Repeat("n", 300), "*"}
	indices = []string{"[0]", "[0]", "[1]", "[-1]", "[99999999999999999999]", "[x]", "[]"}
)

// values are hostile for most keys, and valid for some.
var values = []string{"", ".", "*", "\x00", "-1", "true", "false", "a", "b", "a@internal", "noop@internal",
	"api@internal", "0", "1", "-1",
	"9223372036854775807", "-9223372036854775808", "1e309", "NaN", "-Inf", "0x7f", "1ns", "-1s", "2562047h", "1s",
	"é", "bücher.test",
	"xn--bcher-kva.test", "a.test", "*.a.test", "a..test", "::1", "[::1]:80", "10.0.0.0/8", "0.0.0.0/0", "::/0",
	"10.0.0.1:99999",
	"http://", "http://a.test:80/x?y#z", "https://[::1%25lo]/", "h2c://a", "://", "http://%zz", "unix:///x",
	"fastcgi://a", ":80", ":80/udp",
	":443/tcp", "a,b,,c", ",", "200-599", "599-200", "4xx", "GET", "{{ .Name }}", "{{ range }}", "$1${a}$$",
	"(a|b|c){1,500}", "((a{1,30}){1,30}){1,30}",
	`\pL\pN`, "[", "(?P<a>", "^/(.*)$", "Host(`a.test`)", "Host(`*`)", "HostSNI(`*`)", "HostRegexp(`^[a-z]+$`)",
	"PathRegexp(`(a|b){1,900}`)",
	"Host(`a`) && (", "!!!!Host(`a`)", "Host(`" + "{x:.*}" + "`)", "ClientIP(`::1`) || Query(`a`,`b`)",
	"HeaderRegexp(`a`,`[`)",
	"NetworkErrorRatio() > 0.5", "ResponseCodeRatio(500,600,0,0) > 1", "LatencyAtQuantileMS(101) > 0", "wrr", "p2c",
	"hrw", "leasttime",
	"VersionTLS13", "VersionSSL30", "TLS_AES_128_GCM_SHA256", "RequireAndVerifyClientCert", "CurveP256", "X25519",
	"lax", "grpc",
	"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "a:$2y$05$x", "a:$apr1$x$", "a:r:0123", "json",
	"common", "DEBUG",
	strings.Repeat("a", 3000), strings.Repeat("(", 200) + "Host(`a`)", strings.Repeat("!", 150) + "Host(`a`)",
	strings.Repeat("a,", 800), "../../etc/passwd", "/dev/null", "\u202ea", "%2e%2e", "a\r\nb: c"}

func (g *generator) one(of []string) string { return of[g.random.IntN(len(of))] }

// key chooses a key, its names and indices.
func (g *generator) key(of []string) string {
	key := g.one(of)
	for strings.Contains(key, "NAME") {
		key = strings.Replace(key, "NAME", g.one(names), 1)
		if strings.Contains(key, "NaN") {
			break // it would be replaced again
		}
	}
	for strings.Contains(key, "[n]") {
		key = strings.Replace(key, "[n]", g.one(indices), 1)
	}
	if g.random.IntN(50) == 0 {
		key += g.one([]string{".", "..", "[", "]", "[0]", ".a", strings.Repeat(".a", 200), strings.Repeat("[1]", 50)})
	}
	return key
}

// value chooses a value that the key often accepts.
func (g *generator) value(key string) string {
	switch last := key[strings.LastIndexByte(key, '.')+1:]; {
	case g.random.IntN(3) == 0:
	case last == "rule":
		return g.one([]string{"Host(`a.test`)", "HostSNI(`a.test`)", "HostSNI(`*`)", "Path(`/a`)", "HostRegexp(`a+`)"})
	case last == "service", last == "fallback", last == "certresolver", last == "resolver":
		return g.one([]string{"a", "b"})
	case last == "middlewares", last == "entrypoints":
		return g.one([]string{"a", "b", "a,b", "web"})
	case last == "url":
		return "http://10.0.0.1:80"
	case last == "address":
		return g.one([]string{"10.0.0.1:80", ":80", ":0"})
	}
	return g.one(values)
}

// systematic returns the pair of a number: the numbers from 0 have all keys with the first value, then with the next
// one.
func (g *generator) systematic(n int) tree.Pair {
	key := strings.ReplaceAll(g.dynamic[n%len(g.dynamic)], "stores.NAME", "stores.default")
	key = strings.NewReplacer("NAME", "a", "[n]", "[0]").Replace(key)
	return tree.Pair{Key: key, Value: values[n/len(g.dynamic)%len(values)]}
}

// pairs returns a few keys with values below few objects, or about 64 KiB of them.
func (g *generator) pairs() (all []tree.Pair) {
	all = []tree.Pair{{Key: "http.routers.a.rule", Value: "Host(`a.test`)"}, {Key: "http.routers.a.service",
		Value: "a"},
		{Key: "http.services.a.loadbalancer.server.port", Value: "80"}}
	all = all[:g.random.IntN(len(all)+1)]
	most := 1 + g.random.IntN(12)
	if g.random.IntN(200) == 0 {
		most = 1 << 20
	}
	size := 0
	for ; most > 0 && size < 64<<10; most-- {
		key := g.key(g.dynamic)
		p := tree.Pair{Key: key, Value: g.value(key)}
		all, size = append(all, p), size+len(p.Key)+len(p.Value)
	}
	return all
}

// flags returns a command line.
func (g *generator) flags() (all []string) {
	all = []string{"--entrypoints.web.address=:80"}
	for range 1 + g.random.IntN(8) {
		key := g.key(g.static)
		all = append(all, "--"+key+"="+g.value(key))
	}
	return all
}

// TestGeneratorKnowsAllKeys checks that the keys that crashed before are among those that are generated.
func TestGeneratorKnowsAllKeys(t *testing.T) {
	g := newGenerator()
	for _, key := range []string{"tls.stores.NAME.defaultgeneratedcert.domain.main",
		"http.services.NAME.loadbalancer.servers[n].weight",
		"http.services.NAME.loadbalancer.healthcheck.interval", "http.routers.NAME.tls.domains[n].sans"} {
		if !slices.Contains(g.dynamic, key) {
			t.Errorf("no key %s among %d", key, len(g.dynamic))
		}
	}
	if !slices.Contains(g.static, "entrypoints.NAME.transport.respondingtimeouts.readtimeout") ||
		len(g.dynamic) < 250 || len(g.static) < 100 {
		t.Errorf("%d keys of files, %d of flags", len(g.dynamic), len(g.static))
	}
}
