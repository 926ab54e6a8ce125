package plan

// Homeward is our eBPF program at the egress of every link that has one of ours
// at its ingress: answers of the host itself, where it is a real server, leave
// from the virtual address.
type Homeward struct {
	Found
}

// Key implements Object.
func (Homeward) Key() string { return "bpf homeward" }

// Add implements Object.
func (Homeward) Add() []string {
	return []string{"fairlead-bpf attach homeward to the egress of every link that has ingress"}
}

// Del implements Object.
func (Homeward) Del() []string { return []string{"fairlead-bpf detach homeward from every link"} }
