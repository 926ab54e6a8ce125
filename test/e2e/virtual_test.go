package e2e_test

import "testing"

// TestVirtualAddress moves a virtual address of keepalived. A host that is cut off keeps the address
// although another one has it; a host that gives the address away does not. Nothing must be left.
func TestVirtualAddress(t *testing.T) {
	r := newRoom(t)
	before := r.snapshot()
	r.undisturbed("v.json", "lab", "run", "cluster", "vip:keepalived-tuned", "--baseline", "vip:keepalived-tuned",
		"--workload", "vip-partition,vip-planned", "--rounds", "1", "--duration", "200ms").expect(t, 0, nil)
	r.untouched(before)
	got := decode(t, r.read("v.json"))
	if len(got.Runs) != 2 {
		t.Fatalf("%d runs: %+v", len(got.Runs), got.Absent)
	}
	for _, x := range got.Runs {
		if len(x.Invalid) > 0 || x.Metrics["failover_time"] == 0 {
			t.Errorf("%s: %v %v", x.Workload, x.Metrics, x.Invalid)
		}
		if overlap := x.Metrics["overlap"] > 0; overlap != (x.Workload == "vip-partition") {
			t.Errorf("%s: %v", x.Workload, x.Metrics)
		}
	}
}
