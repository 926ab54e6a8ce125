package e2e_test

import (
	"slices"
	"strings"
	"testing"
)

// connected checks that every run of a session has carried traffic, with a proof by a counter whose name contains
// the text for its path; of paths without a text, by the bytes on links.
func connected(t *testing.T, got report, counters map[string]string) map[string]bool {
	t.Helper()
	measured := map[string]bool{}
	for _, x := range got.Runs {
		measured[x.Path+" "+x.Client] = true
		if x.Proof == nil || !x.Proof.OK || x.Proof.Want == 0 || len(x.Invalid) > 0 {
			t.Errorf("%s, %s, %s: %+v %v", x.Path, x.Client, x.Workload, x.Proof, x.Invalid)
			continue
		}
		want := counters[x.Path+" "+x.Client]
		if want == "" {
			want = "bytes on link"
		}
		if !strings.Contains(x.Proof.Counter, want) {
			t.Errorf("%s, %s: the proof is %q, want %q", x.Path, x.Client, x.Proof.Counter, want)
		}
		checkLedger(t, x)
	}
	return measured
}

// TestOutbound checks that on each path the workload's sandbox reaches a host, and that the counters prove the way of
// its packets.
func TestOutbound(t *testing.T) {
	r := newRoom(t)
	r.undisturbed("o.json", "lab", "run", "outbound", "--workload", "tcp-bulk,tcp-bulk-down,tcp-crr,udp-query",
		"--rounds", "1", "--duration", "100ms").expect(t, 0, nil)
	const nat = "flows in conntrack"
	got := decode(t, r.read("o.json"))
	measured := connected(t, got, map[string]string{"bridge outbound": nat, "vxlan outbound": nat,
		"outbound-ebpf outbound":   "outbound bytes translated by eBPF",
		"hand-masquerade outbound": nat, "cni-bridge outbound": nat, "docker:bridge outbound": nat,
		"slirp4netns outbound": "CPU time of slirp4netns", "pasta outbound": "CPU time of pasta"})
	if !slices.ContainsFunc(got.Absent, func(a absent) bool {
		return a.Path == "pasta" && strings.Contains(a.Reason, "tcp-crr of the client outbound: pasta waits")
	}) {
		t.Errorf("the report does not say why tcp-crr is not measured on pasta: %+v", got.Absent)
	}
	for _, path := range []string{"host", "bridge", "outbound-ebpf", "hand-masquerade", "cni-bridge", "routed",
		"hop-veth", "macvlan", "hand-macvlan", "vxlan", "device", "slirp4netns", "pasta"} {
		if !measured[path+" outbound"] {
			t.Errorf("%s is not measured: %+v", path, got.Absent)
		}
		for _, metric := range []string{"tcp-bulk throughput", "tcp-crr connection_rate", "udp-query latency_p50"} {
			left := path == "pasta" && metric == "tcp-crr connection_rate" ||
				path == "outbound-ebpf" && metric == "udp-query latency_p50"
			if !left {
				wantSane(t, got, "fairlead", path, metric)
			}
		}
	}
}

// TestOutboundWithTools drives iperf3 and qperf as clients in the sandbox, beside Fairlead's generator.
func TestOutboundWithTools(t *testing.T) {
	r := newRoom(t)
	r.undisturbed("t.json", append([]string{"lab", "run", "outbound", "bridge", "pasta", "--with", "iperf3,qperf",
		"--workload", "tcp-bulk,tcp-bulk-down,tcp-rr"}, short...)...).expect(t, 0, nil)
	got := decode(t, r.read("t.json"))
	connected(t, got, map[string]string{"bridge outbound": "conntrack", "pasta outbound": "CPU time"})
	for _, path := range []string{"host", "bridge", "pasta"} {
		wantSane(t, got, "iperf3", path, "tcp-bulk throughput")
		wantSane(t, got, "iperf3", path, "tcp-bulk-down throughput")
		wantSane(t, got, "qperf", path, "tcp-rr latency_mean")
	}
}

// TestPeers checks that on each path another sandbox of the host reaches the workload, from its network and from another
// one.
func TestPeers(t *testing.T) {
	r := newRoom(t)
	r.undisturbed("p.json", "lab", "run", "peer", "--workload", "tcp-bulk,tcp-crr,udp-query", "--rounds", "1",
		"--duration", "50ms").expect(t, 0, nil)
	got := decode(t, r.read("p.json"))
	counters := map[string]string{"docker:publish peer": "conntrack", "docker:publish other-network": "conntrack"}
	for _, client := range []string{" peer", " other-network"} {
		counters["ebpf"+client] = "translated by eBPF"
		counters["proxy"+client] = "through the proxy"
		counters["docker-proxy"+client] = "CPU time of docker-proxy"
	}
	measured := connected(t, got, counters)
	for _, pair := range []string{"host peer", "bridge peer", "filter-on peer", "hop-bridge peer", "routed peer",
		"hop-veth peer", "macvlan peer", "vxlan peer", "ebpf peer", "nat peer", "proxy peer", "docker-proxy peer",
		"cni-bridge peer", "bridge other-network", "routed other-network", "ebpf other-network", "nat other-network",
		"proxy other-network", "docker-proxy other-network", "hand-dnat other-network"} {
		if !measured[pair] {
			t.Errorf("%s is not measured: %+v", pair, got.Absent)
		}
	}
}

// TestPortExhaustion makes more connections to one destination than a host has source ports by default. A path that
// keeps the ports of the sandbox completes them all. One that opens sockets on the host does not, and the report says
// how many failed, and why.
func TestPortExhaustion(t *testing.T) {
	const attempts = 50_000
	r := newRoom(t)
	o := r.undisturbed("x.json", "lab", "run", "outbound", "bridge", "pasta", "--workload", "port-exhaustion",
		"--rounds", "1")
	o.expect(t, 0, nil)
	got := decode(t, r.read("x.json"))
	for _, x := range got.Runs {
		completed, failed := x.Metrics["completed_connects"], x.Metrics["failed_connects"]
		reasons := 0
		for _, n := range x.Failed {
			reasons += n
		}
		if completed+failed != attempts || float64(reasons) != failed || len(x.Invalid) > 0 {
			t.Errorf("%s: %v completed, %v failed, %v, %v", x.Path, completed, failed, x.Failed, x.Invalid)
		}
		if x.Path != "pasta" && failed > 0 {
			t.Errorf("%s: %v connections failed: %v", x.Path, failed, x.Failed)
		}
		if x.Path == "pasta" && failed == 0 {
			t.Errorf("pasta completed %v connections from one address with the default range of ports", completed)
		}
	}
	if len(got.Runs) != 4 || !strings.Contains(o.stdout, "failed connects in the median round of port exhaustion") {
		t.Errorf("%d runs, want 4, and a sentence about failures:\n%s", len(got.Runs), o.stdout)
	}
}
