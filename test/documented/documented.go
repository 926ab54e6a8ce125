// Package documented reads what the guides promise. Its tables are held to the program by other tests: the daemon's
// metrics by internal/frontend/metrics, the gateway's by test/prometheus.
package documented

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Metric is a metric that a guide lists, with its labels.
type Metric struct {
	Name string
	// Kind is counter, gauge or histogram; empty if the guide does not name it.
	Kind   string
	Labels []string
}

// Series returns the name of a series of the metric.
func (m Metric) Series() string {
	if m.Kind == "histogram" {
		return m.Name + "_bucket"
	}
	return m.Name
}

// ofGateway are the labels of the gateway's metrics of an entry point, a router and a service.
var ofGateway = map[string][]string{"entrypoint": {"entrypoint"}, "router": {"router", "service"},
	"service": {"service"}}

var (
	quotedMetric = regexp.MustCompile("`((?:fairlead|traefik)_[a-zA-Z_]+)`( \\(histogram\\))?")
	quotedLabel  = regexp.MustCompile("`([a-z_]+)`")
)

// Metrics returns the metrics in the tables of the guides of a project's folder.
func Metrics(t testing.TB, root string) (all []Metric) {
	t.Helper()
	guides := filepath.Join(root, "docs/guide")
	for _, line := range table(t, filepath.Join(guides, "monitoring.md"), "| metric | type | labels | what |") {
		cells := strings.Split(line, "|")
		m := Metric{Name: strings.Trim(cells[1], " `"), Kind: strings.TrimSpace(cells[2])}
		if labels := strings.TrimSpace(cells[3]); labels != "" {
			m.Labels = strings.Split(labels, ", ")
		}
		all = append(all, m)
	}
	for _, line := range table(t, filepath.Join(guides, "gateway.md"), "| metric | labels |") {
		cells := strings.Split(line, "|")
		var labels []string
		for _, l := range quotedLabel.FindAllStringSubmatch(cells[2], -1) {
			labels = append(labels, l[1])
		}
		for _, found := range quotedMetric.FindAllStringSubmatch(cells[1], -1) {
			all = append(all, gatewayMetrics(found[1], found[2] != "", labels)...)
		}
	}
	if len(all) < 80 {
		t.Fatalf("the guides list %d metrics", len(all))
	}
	return all
}

// gatewayMetrics returns the metrics that a name in the gateway's table stands for: X is an entry point, a router or a
// service.
func gatewayMetrics(name string, histogram bool, labels []string) (all []Metric) {
	kind := ""
	if histogram {
		kind = "histogram"
	}
	for of, own := range ofGateway {
		switch {
		case strings.Contains(name, "_X_"):
			all = append(all, Metric{strings.Replace(name, "_X_", "_"+of+"_", 1), kind, slices.Concat(own, labels)})
		case strings.Contains(name, "_"+of+"_open_connections"):
			return []Metric{{name, kind, slices.Concat(own, labels)}}
		}
	}
	if all == nil {
		all = []Metric{{name, kind, labels}}
	}
	return all
}

// table returns the rows of the table with a heading in a guide. Rows that name metrics with a pattern are left out.
func table(t testing.TB, guide, heading string) (rows []string) {
	t.Helper()
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), heading+"\n")
	if !found {
		t.Fatalf("%s has no table %s", guide, heading)
	}
	for _, line := range strings.Split(rest, "\n")[1:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		if !strings.Contains(line, "_*`") {
			rows = append(rows, line)
		}
	}
	return rows
}
