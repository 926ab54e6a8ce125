package plan

// FastPath is our XDP program in the drivers of those of the host's uplinks that
// it is for (kernel.Options.XDP). It sends on what the program of Uplinks would,
// and passes all else on to that.
type FastPath struct {
	Found
}

// Key implements Object.
func (FastPath) Key() string { return "bpf fast path" }

// Add implements Object.
func (FastPath) Add() []string {
	return []string{"# ebpf: attach fl_xdp to the driver of every uplink that it is for"}
}

// Del implements Object.
func (FastPath) Del() []string { return []string{"# ebpf: detach fl_xdp from every driver"} }
