package prometheus_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// metric is a metric that a guide lists, with its labels.
type metric struct {
	name   string
	kind   string
	labels []string
}

// series returns the name of a series of the metric.
func (m metric) series() string {
	if m.kind == "histogram" {
		return m.name + "_bucket"
	}
	return m.name
}

// ofGateway are the labels of the gateway's metrics of an entry point, a router and a service.
var ofGateway = map[string][]string{"entrypoint": {"entrypoint"}, "router": {"router", "service"},
	"service": {"service"}}

var (
	quotedMetric = regexp.MustCompile("`((?:fairlead|traefik)_[a-zA-Z_]+)`( \\(histogram\\))?")
	quotedLabel  = regexp.MustCompile("`([a-z_]+)`")
)

// documented returns the metrics in the tables of the guides.
func documented(t *testing.T) (all []metric) {
	t.Helper()
	for _, line := range table(t, "monitoring.md", "| metric | type | labels | what |") {
		cells := strings.Split(line, "|")
		m := metric{name: strings.Trim(cells[1], " `"), kind: strings.TrimSpace(cells[2])}
		if labels := strings.TrimSpace(cells[3]); labels != "" {
			m.labels = strings.Split(labels, ", ")
		}
		all = append(all, m)
	}
	for _, line := range table(t, "gateway.md", "| metric | labels |") {
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
func gatewayMetrics(name string, histogram bool, labels []string) (all []metric) {
	kind := ""
	if histogram {
		kind = "histogram"
	}
	for of, own := range ofGateway {
		switch {
		case strings.Contains(name, "_X_"):
			all = append(all, metric{strings.Replace(name, "_X_", "_"+of+"_", 1), kind, slices.Concat(own, labels)})
		case strings.Contains(name, "_"+of+"_open_connections"):
			return []metric{{name, kind, slices.Concat(own, labels)}}
		}
	}
	if all == nil {
		all = []metric{{name, kind, labels}}
	}
	return all
}

// table returns the rows of the table with a heading in a guide. Rows that name metrics with a pattern are left out.
func table(t *testing.T, guide, heading string) (rows []string) {
	t.Helper()
	_, rest, found := strings.Cut(string(read(t, "../../docs/guide/"+guide)), heading+"\n")
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
