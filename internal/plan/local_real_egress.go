package plan

// LocalRealEgress is our eBPF program at the egress of every link that has one of ours
// at its ingress: answers of the host itself, where it is a real server, leave
// from the virtual address.
type LocalRealEgress struct {
	Found
}

// Key implements Object.
func (LocalRealEgress) Key() string { return "bpf local real egress" }

// Add implements Object.
func (LocalRealEgress) Add() []string {
	return []string{"# ebpf: attach fl_local_egress to the egress of every link that has ingress"}
}

// Del implements Object.
func (LocalRealEgress) Del() []string {
	return []string{"# ebpf: detach fl_local_egress from every link"}
}
