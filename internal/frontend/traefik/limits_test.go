package traefik

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"fairlead/internal/gateway/rule"
)

// allocated returns how many bytes do allocates, also those that are free again.
func allocated(do func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// TestHostileLabels reads about 200 kB of labels of one container, which must not take more than 64 MB, garbage
// included.
// One container without them keeps its router.
func TestHostileLabels(t *testing.T) {
	many := func(count int, key, value string) map[string]string {
		all := map[string]string{}
		for i := range count {
			all[fmt.Sprintf(key, i)] = fmt.Sprintf(value, i)
		}
		return all
	}
	for name, test := range map[string]struct {
		labels  map[string]string
		problem string
	}{
		"a deep key": {map[string]string{"traefik." + strings.Repeat("a.", 20_000) + "a": "x"},
			"bytes: want at most 1024"},
		"a key with a map": {map[string]string{"traefik.http.middlewares.a.plugin." + strings.Repeat("a.", 300) +
			"a": "x"}, "nested"},
		"deep keys": {many(250, "traefik.http.routers.%d"+strings.Repeat(".a", 380), "%d"),
			"more than 32 names"},
		"indices": {many(400, "traefik.http.routers.%d.tls.domains"+strings.Repeat("[1]", 100)+".main",
			"%d"), "more than 32"},
		"routers": {many(4000, "traefik.http.routers.r%d.rule", "Host(`%d.test`)"), ""},
		"routers without services": {merged(many(1500, "traefik.http.routers.r%d.priority", "%d"),
			many(1500, "traefik.http.services.s%d.loadbalancer.server.port", "8%d")), "and 1490 more"},
		"unknown keys": {many(4000, "traefik.http.routers.a.key%d", "value %d"), "is not known"},
		"expressions": {many(3000, "traefik.http.routers.r%d.rule", "HostRegexp(`x%d(a|b|c){1,500}`)"),
			"more than 100000 instr"},
		"expressions of the other syntax": {many(300, "traefik.http.routers.r%d.rule",
			"Query(`a={x:%d"+strings.Repeat(".{990}", 5)+"}`)"), "more than 100000 instr"},
		"expressions of v3 in v2": {many(300, "traefik.http.routers.r%d.rule",
			"Path(`/{x}`) || HostRegexp(`%d"+strings.Repeat(".{990}", 5)+"`)"), "more than 100000 instr"},
		"middlewares": {many(2500, "traefik.http.middlewares.m%d.redirectregex.regex", "x%d(a|b|c){1,500}"),
			"more than 100000 instructions"},
		"faulty expressions": {many(1500, "traefik.http.routers.r%d.rule", "HostRegexp(`%d"+strings.Repeat(`\pL`,
			15)+"[`)"),
			"more than 100000 instructions"},
		"many classes": {many(1500, "traefik.http.routers.r%d.rule", "HostRegexp(`%d"+strings.Repeat(`\pL`, 15)+"`)"),
			"more than 100000 instructions"},
		"classes": {many(24, "traefik.http.routers.r%d.rule", "HostRegexp(`%d"+strings.Repeat(`\pL`, 2700)+"`)"),
			""},
		"a long list": {map[string]string{"traefik.http.routers.a.middlewares": strings.Repeat("a,", 100_000)}, ""},
		"a long rule": {map[string]string{"traefik.http.routers.a.rule": strings.Repeat("Host(`a`)||", 18_000) +
			"Host(`b`)"}, ""},
		"many labels": {many(20_000, "traefik.x%d", "%d"), ""},
		"too much": {many(30, "traefik.http.routers.r%d.rule", "%d"+strings.Repeat("x", 10_000)),
			"want at most 262144"},
		"wild domains": {many(1000, "traefik.http.routers.r%d.tls.domains[999999999].main", "*.%d.test"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			bad, good := whoami("", named("bad", "10.0.0.3", 1)), whoami("", named("good", "10.0.0.4", 2))
			bad.Labels = test.labels
			var problems []Problem
			var found bool
			size := allocated(func() {
				config, all := containersConfig([]Container{bad, good}, DockerOptions{})
				problems, found = all, config.HTTP.Routers["good@docker"] != nil
				for _, r := range config.HTTP.Routers {
					_, _ = rule.Parse(r.Rule, r.RuleSyntax)
				}
			})
			t.Logf("%d kB, %d problems", size>>10, len(problems))
			if size > 64<<20 {
				t.Errorf("the labels took %d MB, want at most 64", size>>20)
			}
			if texts := strings.Join(problemTexts(problems), "\n"); !strings.Contains(texts, test.problem) {
				t.Errorf("no problem has %q: %.2000s", test.problem, texts)
			}
			if !found {
				t.Error("the other container has no router")
			}
		})
	}
}

func merged(a, b map[string]string) map[string]string {
	for key, value := range b {
		a[key] = value
	}
	return a
}

// TestLargestLabels reads labels at the limits: a key of the greatest length and depth, and expressions of the
// greatest size.
func TestLargestLabels(t *testing.T) {
	const maxKey, maxDepth = 1 << 10, 32
	header := "traefik.http.middlewares.a.headers.customrequestheaders."
	deepest := header + strings.Repeat("a.", maxDepth-strings.Count(header, ".")-1)
	deepest += strings.Repeat("x", maxKey-len(deepest))
	c := whoami("")
	c.Networks = map[string][]netip.Addr{"web": {netip.MustParseAddr("10.0.0.2")}}
	c.Labels = map[string]string{deepest: "1"}
	for i := range 10 {
		c.Labels[fmt.Sprintf("traefik.http.routers.r%d.rule", i)] = fmt.Sprintf("HostRegexp(`%d(a|b|c){1,900}`)", i)
	}
	config, problems := containersConfig([]Container{c}, DockerOptions{})
	if len(problems) > 0 || len(config.HTTP.Routers) != 10 ||
		len(config.HTTP.Middlewares["a@docker"].Headers.CustomRequestHeaders) != 1 {
		t.Errorf("%d routers, middlewares %v, problems %q", len(config.HTTP.Routers), config.HTTP.Middlewares,
			problemTexts(problems))
	}
}
