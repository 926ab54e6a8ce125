package plan

// FastPath is the XDP program in the drivers of the uplinks that kernel.Options.XDP
// selects. It forwards the packets that the program of Uplinks would forward, and
// passes all others to that program.
type FastPath struct {
	Found
}

// Key implements Object.
func (FastPath) Key() string { return "bpf fast path" }

// Add implements Object.
func (FastPath) Add() []string {
	return []string{"# ebpf: attach fl_xdp to the driver of every selected uplink"}
}

// Del implements Object.
func (FastPath) Del() []string { return []string{"# ebpf: detach fl_xdp from every driver"} }
