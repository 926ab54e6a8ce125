package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// NetLink is a link of a namespace with the properties that decide about
// packets. It need not be Fairlead's.
type NetLink struct {
	Name  string
	Index int
	// Kind is as in `ip -d link`, or "loopback", or "device" for hardware.
	Kind string
	Up   bool
	MTU  int
	MAC  string
	// Addresses are all addresses of the link, with their prefixes.
	Addresses []netip.Prefix
	// Bridge is the bridge that the link is a port of, and Hairpin the port's
	// hairpin mode.
	Bridge  string
	Hairpin bool
	// Parent is the index of a veth's other end, or of a sub-link's parent; 0 if
	// there is none.
	Parent int
	// ParentNetns is the id that this namespace has for the namespace of Parent,
	// netns.NoID if it is the same one; see NamespaceID.
	ParentNetns int
	// Private says that other sub-links of the same parent cannot reach this
	// macvlan.
	Private bool
	// Owner is the network or endpoint that Fairlead made the link for.
	Owner string
	// NoARP says that the link neither resolves addresses nor answers for its own.
	NoARP bool
	// Port are the settings of a bridge port.
	Port PortFlags
	// Filtering says that the bridge filters VLANs.
	Filtering bool
}

// NetLinks returns the links of the host's namespace.
func (h *Host) NetLinks() ([]NetLink, error) {
	reader, err := h.readOnly()
	if err != nil {
		return nil, err
	}
	defer reader.Release()
	handle, list, err := reader.dump("")
	if err != nil {
		return nil, err
	}
	ports, err := reader.portFlags()
	if err != nil {
		return nil, err
	}
	links := make([]NetLink, len(list))
	for i, l := range list {
		a := l.Attrs()
		links[i] = NetLink{Name: a.Name, Index: a.Index, Kind: l.kind(), Up: isUp(l), MTU: a.MTU, MAC: a.HardwareAddr.String(),
			Addresses: l.addresses, Parent: a.ParentIndex, ParentNetns: a.NetNsID, Owner: owner(l),
			NoARP: a.RawFlags&unix.IFF_NOARP != 0, Port: ports[a.Index]}
		if b, ok := l.Link.(*netlink.Bridge); ok && b.VlanFiltering != nil {
			links[i].Filtering = *b.VlanFiltering
		}
		if m, ok := l.Link.(*netlink.Macvlan); ok {
			links[i].Private = m.Mode != netlink.MACVLAN_MODE_BRIDGE
		}
		if links[i].Bridge, links[i].Hairpin = reader.readPort(handle, l); links[i].Bridge == a.Name {
			links[i].Bridge = ""
		}
	}
	return links, nil
}

// dumped is a link with its addresses.
type dumped struct {
	netlink.Link
	addresses []netip.Prefix
}

// dump reads all links of a namespace with their addresses. It also returns the
// handle of the namespace.
func (h *Host) dump(path string) (*netlink.Handle, []dumped, error) {
	handle, err := h.at(path)
	if err != nil {
		return nil, nil, err
	}
	list, err := nlutil.Retry(handle.LinkList)
	if err != nil {
		return nil, nil, fmt.Errorf("list links: %w", err)
	}
	addresses, err := nlutil.Retry(func() ([]netlink.Addr, error) { return handle.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return nil, nil, fmt.Errorf("list addresses: %w", err)
	}
	all := make([]dumped, len(list))
	for i, l := range list {
		all[i].Link = l
		for _, a := range addresses {
			if a.LinkIndex == l.Attrs().Index {
				all[i].addresses = append(all[i].addresses, nlutil.Prefix(a.IP, a.Mask))
			}
		}
	}
	return handle, all, nil
}

// kind returns the link's kind as in `ip -d link`, or "loopback".
func (d dumped) kind() string {
	if d.Attrs().RawFlags&unix.IFF_LOOPBACK != 0 {
		return string(plan.Loopback)
	}
	return d.Type()
}

// NamespaceID returns the id that the host's namespace has for the namespace at
// path; false if it has none.
func (h *Host) NamespaceID(path string) (int, bool) {
	ns, err := netns.Open(path)
	if err != nil {
		return netns.NoID, false
	}
	defer ns.Close()
	handle, err := h.at("")
	if err != nil {
		return netns.NoID, false
	}
	id, err := handle.GetNetNsIdByFd(int(ns.File().Fd()))
	return id, err == nil && id >= 0
}

// Program is an attached eBPF program of Fairlead.
type Program struct {
	// Name is the program's name, and ID the kernel's number for it. Pin is the
	// file in the bpffs that keeps it attached.
	Name string
	ID   uint32
	Pin  string
	// Link is the link that the program is attached to. It is empty for a program
	// at the socket calls of the host's processes.
	Link string
}

// EBPFState is a snapshot of the eBPF data path: its port mappings, its grants
// and its attached programs.
type EBPFState struct {
	Mappings []plan.EBPFMapping
	Grants   []plan.Grant
	Programs []Program
}

// EBPFState reads the state of the eBPF data path, whichever process has set it
// up. It changes nothing.
func (h *Host) EBPFState() (EBPFState, error) {
	mappings, grants, err := h.EBPFMappings()
	if err != nil {
		return EBPFState{}, err
	}
	found := EBPFState{Mappings: mappings, Grants: grants}
	err = h.withDatapath(func(s *ebpf.ReadOnly) error {
		attached, err := s.Attachments()
		if err != nil {
			return err
		}
		handle, err := h.at("")
		if err != nil {
			return err
		}
		for _, a := range attached {
			p := Program{Name: a.Program, ID: a.ID, Pin: a.Pin}
			if a.Ifindex != 0 {
				l, err := handle.LinkByIndex(a.Ifindex)
				if err != nil {
					continue // the link was deleted meanwhile
				}
				p.Link = l.Attrs().Name
			}
			found.Programs = append(found.Programs, p)
		}
		return nil
	})
	slices.SortFunc(found.Mappings, func(a, b plan.EBPFMapping) int { return strings.Compare(a.Key(), b.Key()) })
	return found, err
}

// EBPFFlows returns the flows in the table of Fairlead's eBPF programs, without
// the stale ones.
func (h *Host) EBPFFlows() (all []ebpf.Flow, err error) {
	err = h.withDatapath(func(s *ebpf.ReadOnly) error {
		return s.Flows(func(f ebpf.Flow) {
			if !f.Stale {
				all = append(all, f)
			}
		})
	})
	return all, err
}

// ServiceMapping returns the key under which EBPFMappingCounts counts the flows
// to a real server of a service.
func ServiceMapping(service string, real netip.AddrPort) string {
	return plan.EBPFService{Balanced: plan.Balanced{Service: service}}.Key() + " " + real.String()
}

// EBPFMappingCounts returns two kinds of counts. The key of a port mapping has
// the number of packets that were redirected to its endpoint plus the number of
// flows that it has begun. A key of ServiceMapping has the number of flows that
// were assigned to that real server.
func (h *Host) EBPFMappingCounts() (map[string]uint64, error) {
	counts := map[string]uint64{}
	err := h.withDatapath(func(s *ebpf.ReadOnly) error {
		all, err := s.Counts()
		for _, c := range all {
			counts[h.mappingObject(c.Mapping).Key()] += c.Packets[ebpf.Inward] + c.Flows
		}
		if err != nil {
			return err
		}
		return s.Begun(func(service string, real netip.AddrPort, flows uint64) {
			counts[ServiceMapping(service, real)] += flows
		})
	})
	return counts, err
}

// withDatapath calls fn with a read-only view of the eBPF data path: that of
// this process, or the pinned one. Without either it does nothing.
func (h *Host) withDatapath(fn func(*ebpf.ReadOnly) error) error {
	h.bpf.Lock()
	defer h.bpf.Unlock()
	if h.ebpfState != nil {
		return fn(h.ebpfState.ReadOnly())
	}
	if h.opt.Pins == "" {
		return nil
	}
	cookie, err := h.ns.Cookie()
	if err != nil {
		return err
	}
	s, err := ebpf.OpenReadOnly(h.pins(cookie))
	if err != nil || s == nil {
		return err
	}
	return errors.Join(fn(s), s.Close())
}

// Namespaces returns a path to each network namespace that has a name of
// `ip netns` or a process in it. Each namespace is returned once; the host's is
// left out. The path of a process is that of the lowest pid.
func (h *Host) Namespaces() []string {
	named, _ := filepath.Glob("/run/netns/*")
	pids, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	slices.SortFunc(pids, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return slices.Compare([]byte(a), []byte(b))
	})
	seen := map[uint64]bool{}
	var st unix.Stat_t // a namespace is identified by its inode, not by its path
	if unix.Fstat(int(h.ns.File().Fd()), &st) == nil {
		seen[st.Ino] = true
	}
	var all []string
	for _, path := range slices.Concat(named, pids) {
		ns, err := netns.Open(path)
		if err != nil {
			continue
		}
		err = unix.Fstat(int(ns.File().Fd()), &st)
		ns.Close()
		if err == nil && !seen[st.Ino] {
			seen[st.Ino] = true
			all = append(all, path)
		}
	}
	return all
}

// Path returns a path to the host's namespace that is valid in this process
// only.
func (h *Host) Path() string { return h.ns.Path() }
