package script_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
)

// laboratory shortens the documented runs of the laboratory. Its set contains the workloads that the
// pages so far have measured, each for a client and an address family.
type laboratory map[string]bool

// newLaboratory returns a laboratory for all pages. Its set contains the workloads that take longest and
// that test/e2e measures (TestLiveFlows, TestSite).
func newLaboratory() laboratory {
	l := laboratory{}
	s, _ := suite.Find("quick")
	for _, name := range []string{"tcp-rr-100k-flows", "visits-killed"} {
		w, _ := s.FindWorkload(name)
		l.add(s, w)
	}
	return l
}

const labCommand = "fairlead lab run"

var (
	// whole matches runs that are not shortened: their conditions need certain workloads.
	whole     = regexp.MustCompile(`\s--fail-if[= ]`)
	workloads = regexp.MustCompile(`\s+--workload[= ](\S+)`)
	clients   = regexp.MustCompile(`\s--client[= ](\S+)`)
	baseline  = regexp.MustCompile(`\s--baseline[= ](\S+)`)
	family    = regexp.MustCompile(`\s--family[= ](\S+)`)
)

// shorten returns the commands that the test runs in place of a documented run of a laboratory. The
// last one measures all paths with one workload only. If no page has measured the other workloads, a
// command before it measures them, too, on one path. A complete run measures every workload on every path, which
// proves little more. Returns an error if a workload does not exist.
func (l laboratory) shorten(command string) ([]string, error) {
	if !strings.HasPrefix(command, labCommand) || whole.MatchString(command) {
		return []string{command}, nil
	}
	names, flags := command[len(labCommand):], ""
	if i := strings.Index(names, " --"); i >= 0 {
		names, flags = names[:i], names[i:]
	}
	s, loads, err := chosen(strings.Fields(names), flags)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	base, _ := suite.FindPath(s.Baseline)
	if len(loads) < 2 || base.Peer.InDocker { // an engine for each path takes longer than the measurements
		return []string{command}, nil
	}
	flags = workloads.ReplaceAllString(flags, "")
	// On a busy machine, a workload with a rate may have no figure.
	first := loads[max(0, slices.IndexFunc(loads, func(w suite.Workload) bool { return w.Spec.Rate == 0 }))].Name
	all := fmt.Sprintf("%s%s%s --workload %s", labCommand, names, flags, first)
	on := s.Paths[representative(s)]
	var rest []string
	for _, w := range loads {
		if l.add(s, w) && w.Name != first {
			rest = append(rest, w.Name)
		}
	}
	if len(rest) == 0 {
		return []string{all}, nil
	}
	return []string{fmt.Sprintf("%s %s %s%s --workload %s,%s", labCommand, s.Name, on, flags, first,
		strings.Join(rest, ",")), all}, nil
}

// representative returns the index of the path for the workloads that no page has measured yet: one with eBPF
// programs, which have the most code for each workload, or else the first one that is not the baseline.
func representative(s suite.Suite) int {
	if i := slices.IndexFunc(s.Paths, func(p string) bool { return strings.Contains(p, "ebpf") }); i >= 0 {
		return i
	}
	return max(0, slices.IndexFunc(s.Paths, func(p string) bool { return p != s.Baseline }))
}

// add adds a workload for the suite's clients, and reports whether it is new for one of them.
func (l laboratory) add(s suite.Suite, w suite.Workload) (added bool) {
	for _, c := range s.Clients {
		key := fmt.Sprintf("%d %s %s", s.Family, c, w.Name)
		added = added || !l[key]
		l[key] = true
	}
	return added
}

// chosen returns the suite and the workloads that a command measures.
func chosen(names []string, flags string) (suite.Suite, []suite.Workload, error) {
	s, _ := suite.Find("quick")
	if len(names) > 0 {
		if named, ok := suite.Find(names[0]); ok {
			s, names = named, names[1:]
		}
	}
	if len(names) > 0 {
		s.Paths = names
	}
	if match := baseline.FindStringSubmatch(flags); match != nil {
		s.Baseline = match[1]
	}
	if match := clients.FindStringSubmatch(flags); match != nil {
		s.Clients = nil
		for _, c := range strings.Split(match[1], ",") {
			s.Clients = append(s.Clients, result.Client(c))
		}
	}
	if match := family.FindStringSubmatch(flags); match != nil && match[1] == "6" {
		s.Family = result.IPv6
	}
	match := workloads.FindStringSubmatch(flags)
	if match == nil {
		return s, s.Workloads, nil
	}
	var loads []suite.Workload
	for _, name := range strings.Split(match[1], ",") {
		w, ok := s.FindWorkload(name)
		if !ok {
			return s, nil, fmt.Errorf("there is no workload %q", name)
		}
		loads = append(loads, w)
	}
	return s, loads, nil
}

func TestShortenedLaboratory(t *testing.T) {
	l := newLaboratory()
	for _, c := range []struct {
		command string
		want    []string
	}{
		{"fairlead lab list", []string{"fairlead lab list"}},
		{"fairlead lab run", []string{
			"fairlead lab run quick ebpf --workload tcp-bulk,tcp-rr,tcp-rr-loaded,tcp-crr,udp-pps",
			"fairlead lab run --workload tcp-bulk"}},
		{"fairlead lab run nat --rounds 12", []string{"fairlead lab run nat --rounds 12 --workload tcp-bulk"}},
		{"fairlead lab run quick --family 6", []string{
			"fairlead lab run quick ebpf --family 6 --workload tcp-bulk,tcp-rr,tcp-rr-loaded,tcp-crr,udp-pps",
			"fairlead lab run quick --family 6 --workload tcp-bulk"}},
		{"fairlead lab run publish nat --client local,remote --workload tcp-bulk,udp-pps --seed 3", []string{
			"fairlead lab run publish nat --client local,remote --seed 3 --workload tcp-bulk,udp-pps",
			"fairlead lab run publish nat --client local,remote --seed 3 --workload tcp-bulk"}},
		{"fairlead lab run scale nat --workload tcp-rr,tcp-rr-100k-flows", []string{
			"fairlead lab run scale nat --workload tcp-rr"}},
		{"fairlead lab run gateway gateway:nginx --workload http-rr-9k,http-rr", []string{
			"fairlead lab run gateway gateway:nginx --workload http-rr,http-rr-9k",
			"fairlead lab run gateway gateway:nginx --workload http-rr"}},
		{"fairlead lab run nat --workload tcp-rr", []string{"fairlead lab run nat --workload tcp-rr"}},
		{"fairlead lab run nat --fail-if 'nat.bulk.ratio < 1'", []string{
			"fairlead lab run nat --fail-if 'nat.bulk.ratio < 1'"}},
		{"fairlead lab run docker --workload tcp-rr,docker-run-udp", []string{
			"fairlead lab run docker --workload tcp-rr,docker-run-udp"}},
	} {
		got, err := l.shorten(c.command)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", c.command, err, diff)
		}
	}
	if _, err := l.shorten("fairlead lab run nat --workload tcp-none"); err == nil {
		t.Error("a workload that does not exist is accepted")
	}
}
