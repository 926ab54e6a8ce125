package e2e_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// siteRun is a run of the suite site.
type siteRun struct {
	Path, Workload string
	Metrics        map[string]float64
	Proof          *struct {
		Counter, Absent string
		OK              bool
	}
	Invalid []string
	Failed  map[string]int
	Site    *struct {
		Visits, Failed, Requests int
		Bytes                    uint64
		Nodes                    []struct {
			Requests uint64
			CPU      float64
		}
		Samples []any
		Steps   []struct{ Over bool }
	}
}

// TestSite visits a web site with one gateway and with four, and kills a node. Without a failure,
// every visit must succeed, which means that every byte was compared with the expected one. The
// counters must prove that responses bypass the director. Nothing must be left.
func TestSite(t *testing.T) {
	r := newRoom(t)
	before := r.snapshot()
	measured := r.visit(t, "site:fairlead-1", "site:fairlead-4", "site:nginx-4", "--workload", "visits,visits-killed",
		"--html", r.file("s.html"))
	r.untouched(before)
	for _, want := range []string{"site:fairlead-1 visits", "site:fairlead-4 visits", "site:nginx-4 visits",
		"site:fairlead-4 visits-killed", "site:nginx-4 visits-killed"} {
		if !measured[want] {
			t.Errorf("%s was not measured", want)
		}
	}
	for _, want := range []string{"Visits in progress", "Response time of the probe"} {
		if !strings.Contains(string(r.read("s.html")), want) {
			t.Errorf("the page has no chart %q", want)
		}
	}
}

// TestSiteIPv6 visits a web site over IPv6. A run counts only if the visitors' packets were of
// IPv6.
func TestSiteIPv6(t *testing.T) {
	r := newRoom(t)
	before := r.snapshot()
	measured := r.visit(t, "site:fairlead-1", "site:fairlead-4", "--workload", "visits", "--family", "6")
	r.untouched(before)
	if len(measured) != 2 {
		t.Errorf("only %v were measured", measured)
	}
}

// visit runs one round of the suite site, checks the runs, and returns those that count by path and
// workload.
func (r *room) visit(t *testing.T, args ...string) (measured map[string]bool) {
	t.Helper()
	o := r.run(append([]string{"lab", "run", "site", "--rounds", "1", "--duration", "600ms", "--json",
		r.file("s.json")}, args...)...)
	var report struct{ Runs []siteRun }
	if err := json.Unmarshal(r.read("s.json"), &report); err != nil {
		t.Fatal(err)
	}
	measured = map[string]bool{}
	busy := false
	for _, x := range report.Runs {
		// A busy machine may delay the visitors.
		x.Invalid = slices.DeleteFunc(x.Invalid, func(why string) bool {
			delayed := strings.Contains(why, "delayed")
			busy = busy || delayed
			return delayed
		})
		if len(x.Invalid) > 0 || x.Site == nil || x.Proof == nil || !x.Proof.OK {
			t.Errorf("%s %s: %+v", x.Path, x.Workload, x)
			continue
		}
		measured[x.Path+" "+x.Workload] = true
		x.check(t)
	}
	if !busy || o.code != 1 {
		o.expect(t, 0, nil)
	}
	return measured
}

// check checks what every run must have.
func (x siteRun) check(t *testing.T) {
	t.Helper()
	s := x.Site
	if s.Visits == 0 || s.Bytes == 0 || x.Metrics["visit_p50"] <= 0 || x.Metrics["cpu_per_visit"] <= 0 ||
		len(s.Nodes) != 4 || len(s.Samples) == 0 {
		t.Errorf("%s %s: %+v %v", x.Path, x.Workload, s, x.Metrics)
	}
	var served uint64
	for _, n := range s.Nodes {
		served += n.Requests
	}
	if x.Workload == "visits" && (s.Failed > 0 || len(x.Failed) > 0 || served < uint64(s.Requests)) {
		t.Errorf("%s: %d of %d visits failed: %v; the servers answered %d of %d requests", x.Path, s.Failed, s.Visits,
			x.Failed, served, s.Requests)
	}
	if through := x.Proof.Absent != ""; through != (x.Path != "site:fairlead-1") {
		t.Errorf("%s: the proof says nothing about the director: %+v", x.Path, x.Proof)
	}
	if x.Workload == "visits-killed" && x.Metrics["notice_time"] <= 0 {
		t.Errorf("%s: the director has not noticed the failure: %v", x.Path, x.Metrics)
	}
}
