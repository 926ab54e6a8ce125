package suite

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"fairlead/internal/lab/result"
	"fairlead/internal/model"
)

func TestSuitesUseKnownPathsAndWorkloads(t *testing.T) {
	for _, s := range Suites() {
		if s.Question == "" || s.Rounds < 5 || s.Duration <= 0 || !slices.Contains(s.Paths, s.Baseline) {
			t.Errorf("%s: %+v", s.Name, s)
		}
		for _, name := range s.Paths {
			p, ok := FindPath(name)
			if !ok {
				t.Errorf("%s: unknown path %q", s.Name, name)
			}
			for _, c := range s.Clients {
				if name == s.Baseline && !p.Reaches(c) {
					t.Errorf("%s: client %s cannot reach the baseline", s.Name, c)
				}
			}
			for _, w := range s.Workloads {
				if name == s.Baseline && w.Event == "" && !p.Supports(w) {
					t.Errorf("%s: the baseline does not support %s", s.Name, w.Name)
				}
			}
		}
		for _, w := range s.Workloads {
			if !w.Generated() {
				continue
			}
			w.Spec.Duration = time.Second
			w.Spec.FlowAddrs = nil
			w.Spec.Flows = 0 // the runner sets their addresses
			if _, err := w.Spec.Normal(); err != nil || result.Kind(w.Name) == "" {
				t.Errorf("%s: workload %s: %v", s.Name, w.Name, err)
			}
		}
	}
}

func TestWorkloadsListsEveryWorkload(t *testing.T) {
	for _, s := range Suites() {
		for _, w := range s.Workloads {
			if !slices.ContainsFunc(Workloads(), func(o Workload) bool { return o.Name == w.Name }) {
				t.Errorf("%s: %s is missing in Workloads", s.Name, w.Name)
			}
		}
	}
}

// TestEachStepAddsOneHop: after the first step, each step made by hand differs in
// exactly one property from the step before.
func TestEachStepAddsOneHop(t *testing.T) {
	s, _ := Find("waterfall")
	for i, step := range s.Steps {
		if step.Path != s.Paths[i] || i > 0 && step.Over == "" {
			t.Errorf("step %+v of path %s", step, s.Paths[i])
		}
		p, _ := FindPath(step.Path)
		before, _ := FindPath(step.Over)
		if p.Peer != HandHops || before.Peer != HandHops {
			continue
		}
		differ := 0
		for _, d := range []bool{p.Driver != before.Driver, p.Driver == before.Driver && p.Filter != before.Filter,
			p.Tracked != before.Tracked} {
			if d {
				differ++
			}
		}
		if differ != 1 {
			t.Errorf("step %s differs from %s in %d things", step.Path, step.Over, differ)
		}
	}
}

// TestPathsOfOthers checks that paths of others serve no clients that their makers do not
// attach.
func TestPathsOfOthers(t *testing.T) {
	served := map[result.Client][]string{}
	for _, p := range Paths() {
		if p.ByOthers() && !p.Peer.InDocker && (p.Reaches(result.Local) || !p.Reaches(result.Remote) &&
			p.Peer != HandMasquerade) {
			t.Errorf("%s serves other clients than remote ones", p.Name)
		}
		for _, c := range []result.Client{result.Peer, result.OtherNetwork} {
			if p.ByOthers() && !p.Peer.InDocker && p.Reaches(c) {
				served[c] = append(served[c], p.Name)
			}
		}
		if p.Via == model.ViaSocket && p.Driver != model.DriverHost {
			t.Errorf("%s: socket publishes work in the host's network namespace only", p.Name)
		}
	}
	want := map[result.Client][]string{
		result.Peer:         {"hop-veth", "hop-bridge", "hop-br-netfilter", "hop-conntrack", "cni-bridge"},
		result.OtherNetwork: {"hand-dnat"},
	}
	if !reflect.DeepEqual(served, want) {
		t.Errorf("the clients on the host reach %v, want %v", served, want)
	}
}

// TestOutboundPaths checks which paths are measured for connections that sandboxes open, in
// particular that no path is measured twice under two names.
func TestOutboundPaths(t *testing.T) {
	for name, want := range map[string]bool{"host": true, "bridge": true, "routed": true, "macvlan": true,
		"vxlan": true, "device": true, "outbound-ebpf": true, "hand-masquerade": true, "hop-veth": true,
		"hand-macvlan": true, "cni-bridge": true, "pasta": true, "slirp4netns": true, "docker:bridge": true,
		"docker:host": true,
		"nat":         false, "ebpf": false, "proxy": false, "socket": false, "docker-proxy": false, "hand-dnat": false,
		"hop-bridge": false, "hand-vxlan": false, "balance:nft": false, "vip:keepalived": false,
		"gateway:nginx": false, "docker:publish": false} {
		if p, ok := FindPath(name); !ok || p.Reaches(result.Outbound) != want {
			t.Errorf("%s: measured is %v, want %v", name, p.Reaches(result.Outbound), want)
		}
	}
}

func TestFindPathWithMTU(t *testing.T) {
	for name, want := range map[string]int{"macvlan": 1500, "macvlan-mtu9000": 9000, "host-mtu65520": 65520,
		"host-mtu1280": 1280} {
		if p, ok := FindPath(name); !ok || p.MTU != want || p.Name != name {
			t.Errorf("%s: %+v, %v", name, p, ok)
		}
	}
	for _, name := range []string{"", "macvlan-mtu", "macvlan-mtu1500", "macvlan-mtu1279", "macvlan-mtu65536",
		"macvlan-mtu+9000", "macvlan-mtu9000-mtu9000", "-mtu9000"} {
		if p, ok := FindPath(name); ok {
			t.Errorf("FindPath accepts %q: %+v", name, p)
		}
	}
}

func TestAtMTUs(t *testing.T) {
	s := Suite{Baseline: "host", Paths: []string{"host", "nat"},
		Steps: []Step{{"host", "host", ""}, {"+ NAT", "nat", "host"}}}
	got, err := s.AtMTUs([]int{9000, 1500})
	want := Suite{
		Baseline: "host-mtu9000", Paths: []string{"host-mtu9000", "nat-mtu9000", "host", "nat"},
		Steps: []Step{{"host-mtu9000", "host-mtu9000", ""}, {"+ NAT-mtu9000", "nat-mtu9000", "host-mtu9000"},
			{"host", "host", ""}, {"+ NAT", "nat", "host"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := s.AtMTUs(nil); err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("without MTUs: %+v, %v", got, err)
	}
	if _, err := s.AtMTUs([]int{9000, 100}); err == nil {
		t.Error("an MTU of 100 is accepted")
	}
	if _, err := (Suite{Paths: []string{"nat-mtu9000"}}).AtMTUs([]int{1500}); err == nil {
		t.Error("a path with two MTUs is accepted")
	}
}

func TestFindWorkload(t *testing.T) {
	s, _ := Find("publish")
	for name, want := range map[string]float64{"http-rr-5k": 5000, "http-rr-changes-3k": 3000, "http-rr-27k": 27_000,
		"tcp-bulk": 0} {
		if w, ok := s.FindWorkload(name); !ok || w.Spec.Rate != want || w.Name != name {
			t.Errorf("%s: %+v, %v", name, w, ok)
		}
	}
	if w, _ := s.FindWorkload("tcp-bulk"); w.Spec.Streams != 10 {
		t.Errorf("not the suite's own workload: %+v", w)
	}
	for _, name := range []string{"", "http-rr-", "http-rr-k", "http-rr-0k", "http-rr-05k", "http-rr-1001k",
		"https-rr-5k", "http-rr-changes-k",
		"http-rr-5", "http-rr--5k"} {
		if w, ok := s.FindWorkload(name); ok {
			t.Errorf("FindWorkload accepts %q: %+v", name, w)
		}
	}
}

func TestFindPathWithPorts(t *testing.T) {
	for name, want := range map[string]int{"docker:publish": 1, "docker:publish-ports200": 200,
		"docker:fairlead-nat-ports2-mtu9000": 2, "docker:host": 1} {
		if p, ok := FindPath(name); !ok || p.Ports != want || p.Name != name {
			t.Errorf("%s: %+v, %v", name, p, ok)
		}
	}
	for _, name := range []string{"docker:publish-ports", "docker:publish-ports1", "docker:publish-ports+2",
		"docker:publish-ports10001",
		"docker:publish-mtu9000-ports2", "docker:host-ports2", "docker:bridge-ports2", "nat-ports2"} {
		if p, ok := FindPath(name); ok {
			t.Errorf("FindPath accepts %q: %+v", name, p)
		}
	}
}

// TestShorten: a short session also ends the runs of workloads that have a duration of their own, and changes no suite.
func TestShorten(t *testing.T) {
	whole, _ := Find("outbound")
	short := whole
	short.Shorten(50 * time.Millisecond)
	for i, w := range whole.Workloads {
		want := min(w.Spec.Duration, 50*time.Millisecond)
		if got := short.Workloads[i].Spec.Duration; got != want {
			t.Errorf("%s lasts %v, want %v", w.Name, got, want)
		}
		if w.Name == result.PortExhaustion && w.Spec.Duration != 30*time.Second {
			t.Errorf("%s of the suite lasts %v", w.Name, w.Spec.Duration)
		}
	}
}
