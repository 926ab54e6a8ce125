package plan

// LocalRealEgress is the eBPF program at the egress of every link that has an
// ingress program of Fairlead. If the host itself is a real server, the program
// sets the source address of its answers to the virtual address.
type LocalRealEgress struct {
	Found
}

// Key implements Object.
func (LocalRealEgress) Key() string { return "bpf local real egress" }

// Add implements Object.
func (LocalRealEgress) Add() []string {
	return []string{"# ebpf: attach fl_local_real_egress to the egress of every link that has an ingress program"}
}

// Del implements Object.
func (LocalRealEgress) Del() []string {
	return []string{"# ebpf: detach fl_local_real_egress from every link"}
}
