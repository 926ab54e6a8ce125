package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// Bound is a socket that is bound to a port.
type Bound struct {
	Proto model.Proto
	At    netip.AddrPort
}

// BoundBy returns the sockets in the host's namespace that processes of a cgroup v2
// directory, or of a cgroup below it, have created and bound. Connected sockets of
// clients are not included. TCP sockets that are bound but do not listen yet are
// included from Linux 6.8 on. Returns errors.ErrUnsupported on a kernel before 5.9,
// which does not report a socket's cgroup.
func (h *Host) BoundBy(cgroup string) (all []Bound, err error) {
	within, err := cgroupsBelow(cgroup)
	if err != nil {
		return nil, err
	}
	for _, proto := range []model.Proto{model.TCP, model.UDP} {
		sockets, err := h.boundTo(proto, 0)
		if err != nil {
			return nil, err
		}
		for _, s := range sockets {
			if s.cgroup == 0 {
				return nil, fmt.Errorf("find sockets of cgroup %s: the kernel does not report a socket's cgroup: "+
					"use Linux 5.9 or newer: %w", cgroup, errors.ErrUnsupported)
			}
			if within[s.cgroup] && !s.connected {
				all = append(all, Bound{proto, netip.AddrPortFrom(s.addr, s.port)})
			}
		}
	}
	return all, nil
}

// cgroupsBelow returns the ids of a cgroup and of all cgroups below it. It skips
// cgroups that are removed while it runs.
func cgroupsBelow(path string) (map[uint64]bool, error) {
	ids := map[uint64]bool{}
	err := filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && entry.IsDir() {
			if err = unix.Stat(at, &st); err == nil {
				ids[st.Ino] = true
			}
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list cgroups below %s: %w", path, err)
	}
	return ids, nil
}
