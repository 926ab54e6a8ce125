package plan

// LocalRealEgress is our eBPF program at the egress of every link that has one of ours
// at its ingress: answers of the host itself, where it is a real server, leave
// from the virtual address.
type LocalRealEgress struct {
	Found
}

// Key implements Object.
func (LocalRealEgress) Key() string { return "bpf homeward" }

// Add implements Object.
func (LocalRealEgress) Add() []string {
	return []string{"# ebpf: attach homeward to the egress of every link that has ingress"}
}

// Del implements Object.
func (LocalRealEgress) Del() []string { return []string{"# ebpf: detach homeward from every link"} }
