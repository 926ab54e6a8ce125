package e2e_test

import (
	"slices"
	"testing"
)

// TestFailover makes real servers fail and leave under load. Balancers with health checks must
// notice the failure; without a balancer, requests fail until the server is back. No daemon and no
// server must be left.
func TestFailover(t *testing.T) {
	r := newRoom(t)
	before := r.snapshot()
	balanced := []string{"balance:ebpf", "balance:nft", "balance:haproxy"}
	args := append([]string{"lab", "run", "balancer"}, balanced...)
	r.undisturbed("f.json", append(args, "--workload", "failover-killed,failover-drained", "--rounds", "1",
		"--duration", "200ms", "--html", r.file("f.html"))...).expect(t, 0, nil)
	r.untouched(before)
	got := decode(t, r.read("f.json"))
	find := func(path, workload string) run {
		i := slices.IndexFunc(got.Runs, func(x run) bool { return x.Path == path && x.Workload == workload })
		if i < 0 {
			t.Fatalf("%s was not measured through %s: %+v", workload, path, got.Absent)
		}
		x := got.Runs[i]
		if len(x.Invalid) > 0 || x.Metrics["requests"] == 0 {
			t.Fatalf("%s, %s: %v %v", path, workload, x.Metrics, x.Invalid)
		}
		checkLedger(t, x)
		return x
	}
	for _, workload := range []string{"failover-killed", "failover-drained"} {
		alone := find("routed", workload).Metrics
		if _, noticed := alone["notice_time"]; noticed || alone["failed_requests"] == 0 {
			t.Errorf("%s without a balancer: %v", workload, alone)
		}
		for _, path := range balanced {
			m := find(path, workload).Metrics
			if _, noticed := m["notice_time"]; noticed != (workload == "failover-killed") {
				t.Errorf("%s, %s: %v", path, workload, m)
			}
			if m["return_time"] == 0 || m["failed_requests"] >= alone["failed_requests"] {
				t.Errorf("%s, %s: %v; without a balancer: %v", path, workload, m, alone)
			}
		}
	}
}
