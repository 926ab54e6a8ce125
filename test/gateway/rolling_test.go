package gateway_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// setting returns the number in an environment variable, or the default.
func setting(t *testing.T, name string, byDefault int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return byDefault
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s: want a number", name, text)
	}
	return n
}

// load sends requests to plain.example.com.
func (x *example) load(perSecond int) *load {
	return (&load{client: x.client(), url: "http://plain.example.com/"}).start(x.T, perSecond)
}

// roll replaces the three servers one by one, so many times.
func (x *example) roll(l *load, rounds int) {
	x.Helper()
	for round := range rounds {
		for n := range 3 {
			x.replica(fmt.Sprintf("web%d-%d", n, round+1))
			old := fmt.Sprintf("web%d-%d", n, round)
			x.docker("stop", old)
			x.docker("rm", old)
		}
		if !wantAll(x.T, fmt.Sprintf("round %d", round+1), l.next()) {
			x.Logf("%s\n%s", x.docker("ps", "--all"), x.errors("gateway"))
		}
	}
}

// The windows without and with changes are paths of the laboratory's statistics, and a round has
// this many changes.
const (
	unchanged = "unchanged"
	changing  = "changing"
	perRound  = 50
)

// change compares the times of requests while files of the file provider change with the times while
// nothing changes, until the gateway has put so many configurations to use.
func (x *example) change(l *load, dir string, count int) {
	x.Helper()
	var runs []result.Run
	first := x.reloads()
	for round, done := 1, 0; done < count; round++ {
		length := changePause * time.Duration(min(count-done, perRound))
		for order, path := range []string{unchanged, changing, unchanged} {
			wantAll(x.T, "between the windows", l.next())
			if path == changing {
				x.rewrite(dir, length)
			} else {
				time.Sleep(length)
			}
			w := l.next()
			wantAll(x.T, path, w)
			runs = append(runs, result.Run{Case: result.Case{Path: path}, Round: round, Order: order,
				Half:    []int{1, 0, 2}[order],
				Metrics: map[result.Metric]float64{result.LatencyP99: w.quantile(0.99).Seconds()}})
		}
		before := done
		x.patiently(func() (bool, string) {
			done = x.reloads() - first
			return done > before, "the gateway uses no changed configuration"
		})
	}
	for _, row := range stats.Summarize(runs, unchanged, 1) {
		x.Logf("p99 %s: %.3g ms, ratio %.3f (%.3f to %.3f) over %d rounds", row.Path, row.Value*1000, row.Ratio,
			row.RatioLow, row.RatioHigh, row.Rounds)
		if row.Path == changing && row.Rounds >= 10 && row.RatioLow > 1.1 {
			x.Errorf("changes make p99 longer by more than 10 %%")
		}
	}
}

// changePause is the time from a change to the next. The gateway uses a text that two reads have found, each 100 ms
// after the last change, so changes within 200 ms count as one.
const changePause = 300 * time.Millisecond

// rewrite writes a file with another router again and again.
func (x *example) rewrite(dir string, length time.Duration) {
	x.Helper()
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(changePause) {
		text := fmt.Sprintf("http:\n  routers:\n    changing:\n      rule: Host(`n%d.example.com`)\n"+
			"      service: noop@internal\n", time.Now().UnixNano())
		next := filepath.Join(dir, ".next")
		if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
			x.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, "changing.yml")); err != nil {
			x.Fatal(err)
		}
	}
}

var reloads = regexp.MustCompile(`(?m)^traefik_config_reloads_total (\S+)$`)

// reloads returns how many configurations the gateway has put to use.
func (x *example) reloads() int {
	x.Helper()
	_, text := x.ask("GET", "http://127.0.0.1:8888/metrics")
	found := reloads.FindStringSubmatch(text)
	if found == nil {
		x.Fatal("the metrics lack the number of configurations")
	}
	n, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		x.Fatal(err)
	}
	return int(n)
}

// starting starts a container whose health check fails until a file exists: until then its
// clients get 503 and may try again, and it gets no request.
func (x *example) starting() {
	x.Helper()
	x.app("slow", x.web, `HEALTHCHECK --interval=1s CMD ["/slow", "healthy"]`)
	x.docker("run", "-d", "--name", "slow", "--network", "backends", "--label", "traefik.enable=true",
		"--label", "traefik.http.routers.slow.rule=Host(`slow.example.com`)",
		"--label", "traefik.http.services.slow.loadbalancer.server.port=80", "slow", "serve", "slow")
	answer, _ := x.until(503, "GET", "http://slow.example.com/")
	if answer.Header.Get("Retry-After") == "" {
		x.Errorf("a starting container: %s, %v", answer.Status, answer.Header)
	}
	x.docker("exec", "slow", "/slow", "ready")
	if _, body := x.until(200, "GET", "http://slow.example.com/"); !strings.HasPrefix(body, "slow GET") {
		x.Errorf("a healthy container: %s", body)
	}
}
