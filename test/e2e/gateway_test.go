package e2e_test

import "testing"

// TestGateways measures the gateways that Debian has and Fairlead's, with every kind of request. Path
// proofs must show that all requests went through them.
func TestGateways(t *testing.T) {
	r := newRoom(t)
	paths := []string{"routed", "gateway:fairlead", "gateway:nginx", "gateway:haproxy", "gateway:fairlead-100"}
	args := append([]string{"lab", "run", "gateway"}, paths...)
	args = append(args, "--rounds", "1", "--duration", "100ms", "--with", "wrk,h2load", "--workload")
	var got report
	// A disturbance repeats only a part.
	for _, workloads := range []string{"http-rr,http-rr-changes", "http-crr", "https-rr,https-crr", "h2-rr,ws-rr",
		"http-down,http-up", "idle-conns"} {
		r.undisturbed("g.json", append(args, workloads)...).expect(t, 0, nil)
		part := decode(t, r.read("g.json"))
		got.Runs, got.Summary = append(got.Runs, part.Runs...), append(got.Summary, part.Summary...)
	}
	for _, path := range paths {
		for _, metric := range []string{"http-rr request_rate", "http-crr request_rate", "https-rr request_rate",
			"https-crr request_rate", "h2-rr request_rate", "ws-rr latency_p999", "http-down throughput"} {
			wantSane(t, got, "fairlead", path, metric)
		}
		if path == "routed" {
			continue // it has no gateway
		}
		for _, metric := range []string{"http-rr gateway_cpu_per_op", "idle-conns memory"} {
			wantSane(t, got, "fairlead", path, metric)
		}
	}
	wantSane(t, got, "fairlead", "gateway:fairlead", "http-rr-changes change_time")
	wantSane(t, got, "wrk", "gateway:nginx", "http-crr request_rate")
	for _, path := range paths {
		for _, workload := range []string{"http-rr", "https-rr", "h2-rr"} {
			wantSane(t, got, "h2load", path, workload+" request_rate")
			wantSane(t, got, "h2load", path, workload+" latency_mean")
		}
	}
	for _, x := range got.Runs {
		if x.Proof == nil || !x.Proof.OK || len(x.Invalid) > 0 {
			t.Errorf("%s, %s: %+v %v", x.Path, x.Workload, x.Proof, x.Invalid)
		}
		checkLedger(t, x)
	}
}
