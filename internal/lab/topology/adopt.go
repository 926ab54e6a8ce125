package topology

import (
	"fmt"
	"path/filepath"

	"fairlead/internal/kernel"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/netns"
)

// Adopt registers the network namespace at path, which a container engine has
// created, as the sandbox of that name.
func (w *World) Adopt(name, path string) error {
	ns, err := netns.Open(path)
	if err != nil {
		return err
	}
	w.namespaces = append(w.namespaces, ns)
	w.sandboxes[name] = ns
	return nil
}

// CountEBPFOf makes EBPFBytes and EBPFFlows read the eBPF programs of a daemon
// that runs on the server host, with its files below root.
func (w *World) CountEBPFOf(root string) error {
	opened, err := kernel.Open(fmt.Sprintf("/proc/self/fd/%d", w.server.Netns().Fd()),
		kernel.Options{Pins: filepath.Join(root, datapath.BPFDir)})
	if err != nil {
		return err
	}
	w.usesEBPF = opened
	return nil
}
