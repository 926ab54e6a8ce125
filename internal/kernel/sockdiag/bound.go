package sockdiag

import (
	"errors"
	"fmt"
	"net/netip"

	"fairlead/internal/cgroup"
	"fairlead/internal/model"
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
func (h *Reader) BoundBy(dir string) (all []Bound, err error) {
	within, err := cgroup.Below(dir)
	if err != nil {
		return nil, err
	}
	for _, proto := range []model.Proto{model.TCP, model.UDP} {
		sockets, err := h.boundTo(proto, 0, bound)
		if err != nil {
			return nil, err
		}
		for _, s := range sockets {
			if s.cgroup == 0 {
				return nil, fmt.Errorf("find sockets of cgroup %s: the kernel does not report a socket's cgroup: "+
					"use Linux 5.9 or newer: %w", dir, errors.ErrUnsupported)
			}
			if within[s.cgroup] && !s.connected {
				all = append(all, Bound{proto, netip.AddrPortFrom(s.addr, s.port)})
			}
		}
	}
	return all, nil
}
