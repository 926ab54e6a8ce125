package sockdiag

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"fairlead/internal/model"
)

// Listener is a socket that accepts connections or datagrams from any peer.
type Listener struct {
	Proto model.Proto `json:"proto"`
	// At is the local address. The address :: includes IPv4 unless V6Only is set.
	At     netip.AddrPort `json:"at"`
	V6Only bool           `json:"v6only,omitempty"`
	// Link is the link whose packets the socket accepts (SO_BINDTODEVICE); empty for all.
	Link string `json:"link,omitempty"`
	// Waiting is the number of connections that the process has not accepted yet, and
	// Backlog the one above which the kernel drops new ones. Both are 0 for UDP.
	Waiting uint32 `json:"-"`
	Backlog uint32 `json:"-"`
	Process Owner  `json:"process,omitzero"`
	// Inode identifies the socket.
	Inode uint32 `json:"-"`
	// CgroupID is the id of the cgroup v2 in which the socket was created; 0 before Linux 5.9.
	CgroupID uint64 `json:"-"`
}

// Answers reports whether the socket accepts packets for an address of the sandbox.
func (l Listener) Answers(at netip.Addr) bool {
	return boundSocket{addr: l.At.Addr(), v6only: l.V6Only}.covers(at)
}

// Listeners lists the sockets that accept connections or datagrams from any peer.
func (h *Reader) Listeners() ([]Listener, error) {
	var found []Listener
	var inodes []uint32
	links, err := h.linkNames()
	if err != nil {
		return nil, err
	}
	for _, proto := range []model.Proto{model.TCP, model.UDP} {
		sockets, err := h.boundTo(proto, 0, listening)
		if err != nil {
			return nil, err
		}
		for _, s := range sockets {
			if s.connected {
				continue
			}
			l := Listener{Proto: proto, At: netip.AddrPortFrom(s.addr, s.port), V6Only: s.v6only,
				Link: linkName(links, s.link), Inode: s.inode, CgroupID: s.cgroup}
			if proto == model.TCP {
				l.Waiting, l.Backlog = s.received, s.sent
			}
			found = append(found, l)
			inodes = append(inodes, s.inode)
		}
	}
	processes := processesOf(inodes)
	for i, inode := range inodes {
		found[i].Process = processes[inode]
	}
	slices.SortStableFunc(found, func(a, b Listener) int {
		return cmp.Or(cmp.Compare(a.At.Port(), b.At.Port()), cmp.Compare(a.Proto, b.Proto),
			a.At.Addr().Compare(b.At.Addr()))
	})
	return found, nil
}

// linkName returns the name of a link; that of a link which was deleted is if7 for the index 7, as ss(8) writes it.
func linkName(names map[uint32]string, index uint32) string {
	if name, known := names[index]; known {
		return name
	}
	return fmt.Sprintf("if%d", index)
}

// linkNames returns the names of the links in the host's namespace by their indices.
func (h *Reader) linkNames() (map[uint32]string, error) {
	names := map[uint32]string{0: ""}
	err := h.ns.Do(func() error {
		links, err := net.Interfaces()
		for _, l := range links {
			names[uint32(l.Index)] = l.Name
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	return names, nil
}

// ListensAt reports whether a TCP socket listens at the address and port.
func (h *Reader) ListensAt(at netip.AddrPort) (bool, error) {
	sockets, err := h.boundTo(model.TCP, at.Port(), listening)
	return slices.ContainsFunc(sockets, func(s boundSocket) bool { return s.covers(at.Addr()) }), err
}
