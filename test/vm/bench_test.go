package vm

import "testing"

// BenchmarkBalancer runs the laboratory's suite balancer on a kernel with IPVS. The emulator counts
// instructions as one nanosecond each, so only the ratios are meaningful: they compare the number
// of instructions.
func BenchmarkBalancer(b *testing.B) {
	debian, err := OpenKernel("../../bin/vm")
	if err != nil {
		b.Fatal(err)
	}
	program, err := debian.arch.build(b.Context(), "build", "fairlead/cmd/fairlead")
	if err != nil {
		b.Fatal(err)
	}
	m := Machine{Kernel: debian, Hardened: true, Modules: balancing, Tools: []string{"ip", "nft", "sh", "sysctl"}}
	for b.Loop() {
		o := m.run(b.Context(), map[string][]byte{"/fairlead": program},
			[][]string{{"/fairlead", "lab", "run", "routed", "balance:ipvs", "balance:nft", "balance:ebpf",
				"--baseline", "routed", "--workload", "tcp-rr,tcp-crr,udp-pps", "--rounds", "6", "--duration", "200ms",
				"--seed", "1"}})[0]
		if o.Err != nil {
			b.Fatalf("%v\n%s", o.Err, o.Said)
		}
		b.Log(o.Said)
	}
}
