package e2e_test

import "testing"

// TestVirtualAddress moves virtual addresses of Fairlead and of keepalived. A host with keepalived that is
// cut off keeps the address although another one has it; in all other cases only one host has it. Nothing
// must be left.
func TestVirtualAddress(t *testing.T) {
	r := newRoom(t)
	before := r.snapshot()
	r.undisturbed("v.json", "lab", "run", "cluster", "vip:keepalived-tuned", "vip:fairlead-3s",
		"--baseline", "vip:keepalived-tuned", "--workload", "vip-partition,vip-planned",
		"--rounds", "1", "--duration", "200ms").expect(t, 0, nil)
	r.untouched(before)
	got := decode(t, r.read("v.json"))
	if len(got.Runs) != 4 {
		t.Fatalf("%d runs: %+v", len(got.Runs), got.Absent)
	}
	for _, x := range got.Runs {
		if len(x.Invalid) > 0 || x.Metrics["failover_time"] == 0 {
			t.Errorf("%s, %s: %v %v", x.Path, x.Workload, x.Metrics, x.Invalid)
		}
		both := x.Path == "vip:keepalived-tuned" && x.Workload == "vip-partition"
		if x.Metrics["overlap"] > 0 != both {
			t.Errorf("%s, %s: %v", x.Path, x.Workload, x.Metrics)
		}
	}
}
