package rtnl

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

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
	// Bridge is the bridge that the link is a port of, or another link to which it belongs,
	// such as a VRF. Hairpin is the port's hairpin mode.
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
	// Filtering says that the bridge filters VLANs. CallsIPTables and CallsIP6Tables say
	// that the packets that it forwards pass the IP rules, whatever the sysctls say.
	Filtering                     bool
	CallsIPTables, CallsIP6Tables bool
}

// NetLinks returns the links of the host's namespace.
func (h *Reader) NetLinks() ([]NetLink, error) {
	reader, err := h.Copy()
	if err != nil {
		return nil, err
	}
	defer reader.Release()
	list, err := reader.Dump("")
	if err != nil {
		return nil, err
	}
	ports, err := reader.portFlags()
	if err != nil {
		return nil, err
	}
	messages, err := reader.dumpLinks(unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("list bridges: %w", err)
	}
	bridges := callsOf(messages)
	links := make([]NetLink, len(list))
	for i, l := range list {
		a := l.Attrs()
		links[i] = NetLink{Name: a.Name, Index: a.Index, Kind: l.Kind(), Up: IsUp(l), MTU: a.MTU,
			MAC:       a.HardwareAddr.String(),
			Addresses: l.Addresses, Parent: a.ParentIndex, ParentNetns: a.NetNsID, Owner: Owner(l),
			NoARP: a.RawFlags&unix.IFF_NOARP != 0, Port: ports[a.Index]}
		if b, ok := l.Link.(*netlink.Bridge); ok && b.VlanFiltering != nil {
			links[i].Filtering = *b.VlanFiltering
		}
		links[i].CallsIPTables, links[i].CallsIP6Tables = bridges[a.Index].v4, bridges[a.Index].v6
		if m, ok := l.Link.(*netlink.Macvlan); ok {
			links[i].Private = m.Mode != netlink.MACVLAN_MODE_BRIDGE
		}
		if links[i].Bridge, links[i].Hairpin = reader.ReadPort("", l); links[i].Bridge == a.Name {
			links[i].Bridge = ""
		}
	}
	return links, nil
}

// Dumped is a link with its addresses.
type Dumped struct {
	netlink.Link
	Addresses []netip.Prefix
}

// Dump reads all links of a namespace with their addresses.
func (h *Reader) Dump(path string) ([]Dumped, error) {
	list, err := h.ListLinks(path)
	if err != nil {
		return nil, err
	}
	addresses, err := listAddresses(h, path, unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	all := make([]Dumped, len(list))
	for i, l := range list {
		all[i].Link = l
		for _, a := range addresses {
			if a.LinkIndex == l.Attrs().Index {
				all[i].Addresses = append(all[i].Addresses, nlutil.Prefix(a.IP, a.Mask))
			}
		}
	}
	return all, nil
}

// Kind returns the link's kind as in `ip -d link`, or "loopback".
func (d Dumped) Kind() string {
	if d.Attrs().RawFlags&unix.IFF_LOOPBACK != 0 {
		return string(plan.Loopback)
	}
	return d.Type()
}

// NamespaceID returns the id that the host's namespace has for the namespace at
// path; false if it has none.
func (h *Reader) NamespaceID(path string) (int, bool) {
	ns, err := netns.Open(path)
	if err != nil {
		return netns.NoID, false
	}
	defer ns.Close()
	id, err := h.IDOf(ns)
	return id, err == nil && id >= 0
}

// IDOf returns the id that the host's namespace has for ns; netns.NoID if it has
// none.
func (h *Reader) IDOf(ns *netns.Namespace) (int, error) {
	handle, err := h.handles.At("")
	if err != nil {
		return netns.NoID, err
	}
	id, err := handle.GetNetNsIdByFd(int(ns.File().Fd()))
	if err != nil {
		return netns.NoID, fmt.Errorf("read the namespace's id: %w", err)
	}
	return id, nil
}

// Namespaces returns a path to each network namespace that has a name of
// `ip netns` or a process in it. Each namespace is returned once; the host's is
// left out. The path of a process is that of the lowest pid.
func (h *Reader) Namespaces() []string {
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
func (h *Reader) Path() string { return h.ns.Path() }
