package topology

import (
	"fmt"
	"path/filepath"

	"fairlead/internal/kernel"
)

// Adopt takes the network namespace at path for the sandbox of that name: that
// of a container, which a container engine has made.
func (w *World) Adopt(name, path string) error {
	ns, err := kernel.OpenNetns(path)
	if err != nil {
		return err
	}
	w.namespaces = append(w.namespaces, ns)
	w.sandboxes[name] = ns
	return nil
}

// Follow has EBPFBytes and EBPFFlows count for the eBPF programs of a daemon that
// runs on the server host and sees the files below root.
func (w *World) Follow(root string) (err error) {
	w.usesEBPF, err = kernel.Open(fmt.Sprintf("/proc/self/fd/%d", w.server.Netns().Fd()), kernel.Options{Pins: filepath.Join(root, kernel.BPFDir)})
	return err
}
