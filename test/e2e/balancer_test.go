package e2e_test

import (
	"slices"
	"testing"
)

// TestBalancer measures the balancer's data planes, HAProxy and one real server. Path proofs must
// show that the traffic uses each, and datagrams are sent only through those that carry them.
func TestBalancer(t *testing.T) {
	r := newRoom(t)
	paths := []string{"routed", "balance:ebpf", "balance:nft", "balance:haproxy"}
	args := append([]string{"lab", "run"}, paths...)
	r.undisturbed("b.json", append(args, "--baseline", "routed", "--workload", "tcp-rr,udp-pps", "--rounds", "1",
		"--duration", "100ms")...).expect(t, 0, nil)
	got := decode(t, r.read("b.json"))
	for _, path := range paths {
		wantSane(t, got, "fairlead", path, "tcp-rr latency_p50")
	}
	for _, x := range got.Runs {
		if x.Proof == nil || !x.Proof.OK || len(x.Invalid) > 0 {
			t.Errorf("%s, %s: %+v %v", x.Path, x.Workload, x.Proof, x.Invalid)
		}
		if x.Path == "balance:haproxy" && x.Workload == "udp-pps" {
			t.Error("HAProxy in TCP mode was measured with datagrams")
		}
		checkLedger(t, x)
	}
	for _, path := range paths {
		if !slices.ContainsFunc(got.Runs, func(x run) bool { return x.Path == path }) {
			t.Errorf("%s was not measured", path)
		}
	}
}
