// Package promises_test tests the table of promises: every answer for every driver
// and publish mode, with real packets on the real kernel.
package promises_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
	"fairlead/internal/proxy"
	"fairlead/test/features"
	"fairlead/test/process"
	"fairlead/test/shell"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{proxy.Role: proxy.Main, engineRole: process.Main(runEngine), workerRole: workerMain})
	os.Exit(m.Run())
}

// flavor is a kind of packet.
type flavor struct {
	v4    bool
	proto model.Proto
}

func (f flavor) String() string {
	return map[bool]string{true: "v4", false: "v6"}[f.v4] + "/" + string(f.proto)
}

var (
	flavors4 = []flavor{{true, model.TCP}, {true, model.UDP}}
	flavors6 = []flavor{{false, model.TCP}, {false, model.UDP}}
	flavors  = slices.Concat(flavors4, flavors6)
)

// cell is one answer of the table, for one kind of packet.
type cell struct {
	driver   model.Driver
	via      model.Via
	question promise.Question
	flavor   flavor
}

func (c cell) String() string {
	path := string(c.driver)
	if c.via != "" {
		path = string(c.via) + " to " + path
	}
	return fmt.Sprintf("%s: %s %s", path, c.question, c.flavor)
}

// result is the observed result of a test.
type result struct {
	kept bool
	// because describes the evidence.
	because string
	// err is set if the prober could not decide.
	err error
}

// prober tests a promise with packets.
type prober struct {
	// flavors lists the kinds of packet to which the promise applies.
	flavors []flavor
	probe   func(*lab, cell) result
}

func TestPromises(t *testing.T) {
	facts := features.Facts(t)
	table := provable(t, facts)
	if len(table) == 0 {
		t.Fatalf("there is no driver %q", *only)
	}
	for _, lost := range unasked() {
		t.Error(lost)
	}
	var labs []*lab
	for _, d := range driversOf(table) {
		labs = append(labs, newLab(t, facts, table, d))
	}
	results := examine(labs, table)
	for _, mismatch := range compare(table, results) {
		t.Error(mismatch)
	}
	t.Logf("%d cells tested", len(results))
}

// whole is set on machines where every path must be testable. On other machines, paths are left out
// if they need a feature that not every kernel has.
var whole = flag.Bool("whole", false, "fail if this kernel cannot build a path")

// only limits the test to some drivers, on machines on which it is slow.
var only = flag.String("drivers", "", "test only these drivers, e.g. bridge,ipvlan")

// vmFeatures lists features that the machine of test/vm always has.
var vmFeatures = []plan.Feature{plan.FeatureIPvlan}

// provable returns the table without the paths that only test/vm tests, and without the drivers that the
// flag leaves out.
func provable(t *testing.T, facts plan.Facts) []paths.Path {
	t.Helper()
	for _, f := range vmFeatures {
		if !*whole && !facts.Has(f) {
			t.Logf("only test/vm tests %s: %s", f, facts.Missing[f])
		}
	}
	return slices.DeleteFunc(paths.Table(facts), func(p paths.Path) bool {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), string(p.Driver)) {
			return true
		}
		spared := slices.ContainsFunc(p.Needs, func(f plan.Feature) bool {
			return !*whole && slices.Contains(vmFeatures, f) && !facts.Has(f)
		})
		if p.Unavailable != "" && !spared {
			t.Fatalf("%s %s: cannot be tested on this machine: %s", p.Via, p.Driver, p.Unavailable)
		}
		return spared
	})
}

// driversOf lists the drivers of a table.
func driversOf(table []paths.Path) []model.Driver {
	var drivers []model.Driver
	for _, p := range table {
		if p.Via == "" {
			drivers = append(drivers, p.Driver)
		}
	}
	return drivers
}

// unasked returns the promises without a prober, and the probers without a
// promise.
func unasked() []string {
	var lost []string
	for _, kind := range []struct {
		name      string
		questions []promise.Question
		probers   map[promise.Question]prober
	}{{"driver", promise.Driver(), driverProbers}, {"publish", promise.Publish(), publishProbers}} {
		for _, q := range kind.questions {
			if _, ok := kind.probers[q]; !ok {
				lost = append(lost, fmt.Sprintf("the %s question %s has no prober", kind.name, q))
			}
		}
		for q := range kind.probers {
			if !slices.Contains(kind.questions, q) {
				lost = append(lost, fmt.Sprintf("the %s prober %s belongs to no question", kind.name, q))
			}
		}
	}
	return lost
}

// examine tests every promise with packets. All tests run at once, because a
// negative result takes as long as its timeout.
func examine(labs []*lab, table []paths.Path) map[cell]result {
	results := map[cell]result{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, l := range labs {
		for _, c := range cellsOf(l.driver, table) {
			wg.Go(func() {
				result := proberOf(c.via, c.question).probe(l, c)
				mu.Lock()
				defer mu.Unlock()
				results[c] = result
			})
		}
	}
	wg.Wait()
	return results
}

// cellsOf returns every cell of a driver.
func cellsOf(d model.Driver, table []paths.Path) []cell {
	var cells []cell
	for _, p := range table {
		for question := range p.Promises {
			for _, f := range proberOf(p.Via, question).flavors {
				if p.Driver == d {
					cells = append(cells, cell{d, p.Via, question, f})
				}
			}
		}
	}
	return cells
}

func proberOf(via model.Via, q promise.Question) prober {
	if via == "" {
		return driverProbers[q]
	}
	return publishProbers[q]
}

// compare returns the differences between the table and the observed results, and the cells that
// were not tested.
func compare(table []paths.Path, results map[cell]result) []string {
	var mismatches []string
	for _, p := range table {
		questions := promise.Driver()
		if p.Via != "" {
			questions = promise.Publish()
		}
		for _, q := range questions {
			answer, answered := p.Promises[q]
			if !answered {
				mismatches = append(mismatches, fmt.Sprintf("%s %s: no answer to %s", p.Via, p.Driver, q))
			}
			proved := false
			for _, f := range flavors {
				c := cell{p.Driver, p.Via, q, f}
				got, ok := results[c]
				proved = proved || ok
				switch {
				case !ok:
				case got.err != nil:
					mismatches = append(mismatches, fmt.Sprintf("%s: the prober failed: %v", c, got.err))
				case got.kept != answer.Kept:
					mismatches = append(mismatches, fmt.Sprintf("%s: promised %s, but packets say %s: %s", c,
						yesNo(answer.Kept), yesNo(got.kept), got.because))
				}
			}
			if !proved {
				mismatches = append(mismatches, fmt.Sprintf("%s %s: no test of %s", p.Via, p.Driver, q))
			}
		}
	}
	return mismatches
}

func yesNo(kept bool) string { return map[bool]string{true: "yes", false: "no"}[kept] }

// TestWrongAnswerIsReported inverts every answer of a copy of the table, one at a time.
func TestWrongAnswerIsReported(t *testing.T) {
	truth := paths.Table(plan.Facts{})
	results := map[cell]result{}
	for _, p := range truth {
		for q, answer := range p.Promises {
			for _, f := range proberOf(p.Via, q).flavors {
				results[cell{p.Driver, p.Via, q, f}] = result{kept: answer.Kept}
			}
		}
	}
	if mismatches := compare(truth, results); len(mismatches) != 0 {
		t.Fatalf("correct answers are reported as wrong:\n%s", strings.Join(mismatches, "\n"))
	}
	for i, p := range truth {
		for q, answer := range p.Promises {
			table := paths.Table(plan.Facts{})
			answer.Kept = !answer.Kept
			table[i].Promises[q] = answer
			mismatches := compare(table, results)
			if len(mismatches) != len(proberOf(p.Via, q).flavors) {
				t.Errorf("%s %s: inverting %s reports: %q", p.Via, p.Driver, q, mismatches)
			}
			table = paths.Table(plan.Facts{})
			delete(table[i].Promises, q)
			if len(compare(table, results)) == 0 {
				t.Errorf("%s %s: a missing answer to %s is not reported", p.Via, p.Driver, q)
			}
		}
	}
	if mismatches := compare(truth, nil); len(mismatches) == 0 {
		t.Error("a table without any test passes")
	}
}

// TestIntruderReachesOpenLoopback opens the server's 127.0.0.1 to the LAN. The prober that reports
// it as closed in the other tests must report it as open.
func TestIntruderReachesOpenLoopback(t *testing.T) {
	l := &lab{t: t, world: newWorld(t, plan.Facts{})}
	serve(t, l.world.DoServer, web, "127.0.0.1:80")
	shell.Run(t, l.world.DoServer,
		"nft 'add table inet probe; add chain inet probe raw { type filter hook prerouting priority -400; }';"+
			" sysctl -qw net.ipv4.conf.all.route_localnet=1")
	l.routeLoopback(l.world.DoClient, topology.Wire, topology.ServerAddr4)
	for _, f := range flavors4 {
		got := l.intrude(cell{flavor: f}, l.world.DoClient, topology.ClientAddr4,
			netip.AddrPortFrom(loopbackAddr(true), workPort))
		if got.kept || got.err != nil {
			t.Errorf("%s: an open 127.0.0.1 is reported as closed: %s %v", f, got.because, got.err)
		}
	}
}
