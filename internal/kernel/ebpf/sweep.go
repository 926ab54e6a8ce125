package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf/link"
)

// Sweep removes the pins of hosts that are gone. Each host has a directory below root. A
// host is gone if its eBPF links were attached to interfaces, and none of these
// interfaces exists any more. Sweep keeps the directory of a host that pins only cgroup
// hooks, because the kernel does not show whether such a host still exists.
func Sweep(root string) error {
	hosts, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read pins: %w", err)
	}
	var errs []error
	for _, host := range hosts {
		dir := filepath.Join(root, host.Name())
		gone, err := isGone(filepath.Join(dir, "links"))
		if err == nil && gone {
			err = os.RemoveAll(dir)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// isGone reports whether there are links of interfaces, and all have lost their
// interface.
func isGone(links string) (bool, error) {
	entries, err := os.ReadDir(links)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read pins: %w", err)
	}
	lost := 0
	for _, e := range entries {
		l, err := link.LoadPinnedLink(filepath.Join(links, e.Name()), nil)
		if errors.Is(err, os.ErrNotExist) {
			continue // its host has just removed it
		}
		if err != nil {
			return false, fmt.Errorf("open pinned eBPF link %s: %w", e.Name(), err)
		}
		info, err := l.Info()
		l.Close()
		if err != nil {
			return false, fmt.Errorf("read eBPF link %s: %w", e.Name(), err)
		}
		switch tcx := info.TCX(); {
		case tcx == nil:
		case tcx.Ifindex != 0:
			return false, nil
		default:
			lost++
		}
	}
	return lost > 0, nil
}
