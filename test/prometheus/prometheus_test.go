package prometheus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/child"
	"fairlead/test/documented"
	"fairlead/test/place"
)

// settings precede the scrape configuration of the guide.
const settings = `
global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}
rule_files: [%s]
`

// server is a Prometheus on the host of a world.
type server struct {
	*world
	http.Client
}

// newServer starts a Prometheus that scrapes the world's host with the configuration of the guide.
func newServer(w *world) *server {
	w.Helper()
	dir := w.TempDir()
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		w.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte(fmt.Sprintf(settings, rules)+guideJobs(w.T)), 0o600); err != nil {
		w.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		w.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("prometheus", "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", "127.0.0.1:9090", "--log.level", "warn")
	cmd.Stdout, cmd.Stderr = log, log
	p, err := child.Start(context.Background(), cmd, child.Place{Netns: w.host.File()})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = p.Kill()
		if w.Failed() {
			w.Logf("Prometheus: %s", read(w.T, log.Name()))
		}
	})
	return &server{w, http.Client{Timeout: place.Timeout, Transport: &http.Transport{
		DialContext: func(_ context.Context, network, to string) (net.Conn, error) {
			return place.Dial(w.host.Do, network, to, place.Timeout)
		}}}}
}

// guideJobs returns the scrape configuration of the guide.
func guideJobs(t *testing.T) string {
	t.Helper()
	_, rest, _ := strings.Cut(string(read(t, "../../docs/guide/monitoring.md")), "```yaml\nscrape_configs:\n")
	jobs, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/guide/monitoring.md has no scrape configuration")
	}
	return "scrape_configs:\n" + jobs
}

// result is the answer of Prometheus to a query.
type result struct {
	Status, Error string
	Data          struct {
		Result []struct{ Metric map[string]string }
	}
}

// query returns the series of an expression. An expression that is wrong fails the test.
func (s *server) query(expr string) (series []map[string]string) {
	s.Helper()
	r, err := s.Get("http://127.0.0.1:9090/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return nil // it does not listen yet
	}
	defer r.Body.Close()
	var got result
	if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
		return nil // it starts: the answer is a text
	}
	if got.Error != "" {
		s.Fatalf("%s: %s", expr, got.Error)
	}
	for _, one := range got.Data.Result {
		series = append(series, one.Metric)
	}
	return series
}

// returns waits until an expression has a series with all labels.
func (s *server) returns(what, expr string, labels ...string) {
	s.Helper()
	s.until(fmt.Sprintf("%s has no series with the labels %v: %s", what, labels, expr), func() bool {
		return slices.ContainsFunc(s.query(expr), func(series map[string]string) bool {
			return !slices.ContainsFunc(labels, func(l string) bool { return series[l] == "" })
		})
	})
}

// comparison is the end of an alert's expression.
var comparison = regexp.MustCompile(` (==|>|<) [0-9.]+$`)

// TestEverythingReturnsData asks a real Prometheus for each documented metric with its labels, each panel and variable
// of the dashboard, and each alert without its comparison.
func TestEverythingReturnsData(t *testing.T) {
	w := newWorld(t)
	s := newServer(w)
	for _, m := range documented.Metrics(t, "../..") {
		s.returns("the metric "+m.Name, m.Series(), m.Labels...)
	}
	queries := readDashboard(t).queries()
	for what, query := range queries {
		s.returns(what, query)
	}
	for _, a := range alerts(t) {
		value := comparison.ReplaceAllString(a.Expr, "")
		if value == a.Expr {
			t.Errorf("%s does not end with a comparison: %s", a.Alert, a.Expr)
		}
		s.returns("the alert "+a.Alert, value)
	}
	s.returns("no failed application", "fairlead_apply_failures_total == 0")
	s.returns("an alert that is due", `ALERTS{alertname="FairleadRealServerDown", real="172.30.0.1:81"}`)
}
