package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// NetLink is a link of a namespace as a packet meets it, ours or not.
type NetLink struct {
	Name  string
	Index int
	// Kind is as in `ip -d link`, loopback, or device for a real one.
	Kind string
	Up   bool
	MTU  int
	MAC  string
	// Addresses are all of the link's, with their prefixes.
	Addresses []netip.Prefix
	// Bridge is what the link is a port of, and Hairpin the port's mode.
	Bridge  string
	Hairpin bool
	// Parent is the index of a veth's other end, or of what the link branches
	// from; 0 where there is none.
	Parent int
	// ParentNetns is what this namespace calls that of Parent (NoSandbox for
	// itself); see NamespaceID.
	ParentNetns int
	// Private says of a macvlan that its siblings do not reach it.
	Private bool
	// Owner is the network or endpoint that we have made the link for.
	Owner string
	// NoARP says that the link neither resolves addresses nor answers for its own.
	NoARP bool
	// Port are the settings of a bridge port.
	Port PortFlags
	// Filtering says of a bridge that it filters VLANs.
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

// dump reads all links of a namespace, and returns who can tell more of them.
func (h *Host) dump(path string) (*netlink.Handle, []dumped, error) {
	handle, err := h.at(path)
	if err != nil {
		return nil, nil, err
	}
	list, err := retry(handle.LinkList)
	if err != nil {
		return nil, nil, fmt.Errorf("list links: %w", err)
	}
	addresses, err := retry(func() ([]netlink.Addr, error) { return handle.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return nil, nil, fmt.Errorf("list addresses: %w", err)
	}
	all := make([]dumped, len(list))
	for i, l := range list {
		all[i].Link = l
		for _, a := range addresses {
			if a.LinkIndex == l.Attrs().Index {
				all[i].addresses = append(all[i].addresses, toPrefix(a.IP, a.Mask))
			}
		}
	}
	return handle, all, nil
}

// kind is as in `ip -d link`, or loopback.
func (d dumped) kind() string {
	if d.Attrs().RawFlags&unix.IFF_LOOPBACK != 0 {
		return string(plan.Loopback)
	}
	return d.Type()
}

// NamespaceID is what the host's namespace calls the one at path, false where
// it has no name for it.
func (h *Host) NamespaceID(path string) (int, bool) {
	ns, err := OpenNetns(path)
	if err != nil {
		return NoSandbox, false
	}
	defer ns.Close()
	handle, err := h.at("")
	if err != nil {
		return NoSandbox, false
	}
	id, err := handle.GetNetNsIdByFd(int(ns.File().Fd()))
	return id, err == nil && id >= 0
}

// Listeners lists the sockets of the host that take connections or datagrams
// from anybody.
func (h *Host) Listeners() ([]Listener, error) { return h.listeners("") }

// Program is an eBPF program of ours where it is attached.
type Program struct {
	// Name is the program's, ID the kernel's number, Pin what holds it there.
	Name string
	ID   uint32
	Pin  string
	// Link is empty for a hook at the socket calls of the host's processes.
	Link string
}

// EBPFState is what our eBPF programs do, and where they are attached.
type EBPFState struct {
	Leads    []plan.EBPFMapping
	Grants   []plan.Grant
	Programs []Program
}

// EBPFState looks at the eBPF data plane, whichever process has set it up, and
// changes nothing.
func (h *Host) EBPFState() (EBPFState, error) {
	mappings, grants, err := h.EBPFMappings()
	if err != nil {
		return EBPFState{}, err
	}
	found := EBPFState{Leads: mappings, Grants: grants}
	err = h.world(func(s *ebpf.ReadOnly) error {
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
					continue // it has just gone
				}
				p.Link = l.Attrs().Name
			}
			found.Programs = append(found.Programs, p)
		}
		return nil
	})
	slices.SortFunc(found.Leads, func(a, b plan.EBPFMapping) int { return strings.Compare(a.Key(), b.Key()) })
	return found, err
}

// EBPFFlows returns the flows that our eBPF programs remember now.
func (h *Host) EBPFFlows() (all []ebpf.Flow, err error) {
	err = h.world(func(s *ebpf.ReadOnly) error {
		return s.Flows(func(f ebpf.Flow) {
			if !f.Stale {
				all = append(all, f)
			}
		})
	})
	return all, err
}

// ServiceMapping is the key by which EBPFMappingCounts counts the real server of a service.
func ServiceMapping(service string, real netip.AddrPort) string {
	return plan.EBPFService{Balanced: plan.Balanced{Service: service}}.Key() + " " + real.String()
}

// EBPFMappingCounts returns how many packets each lead has led to its endpoint, and how
// many flows it has begun, together, by the lead's key; and how many flows each
// real server of a service was given, by ServiceMapping.
func (h *Host) EBPFMappingCounts() (map[string]uint64, error) {
	counts := map[string]uint64{}
	err := h.world(func(s *ebpf.ReadOnly) error {
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

// world calls fn with the plane if there is one: ours, or the pinned one.
func (h *Host) world(fn func(*ebpf.ReadOnly) error) error {
	h.bpf.Lock()
	defer h.bpf.Unlock()
	if h.ebpfState != nil {
		return fn(h.ebpfState.ReadOnly())
	}
	if h.opt.Pins == "" {
		return nil
	}
	cookie, err := h.cookie()
	if err != nil {
		return err
	}
	s, err := ebpf.OpenReadOnly(h.pins(cookie))
	if err != nil || s == nil {
		return err
	}
	return errors.Join(fn(s), s.Close())
}

// Namespaces returns a path to each network namespace that a name of `ip netns`
// or a process holds, each once, and not that of the host. Those of processes
// come by the lowest pid.
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
	var st unix.Stat_t // the path of a file that `ip netns` mounts tells nothing
	if unix.Fstat(int(h.ns.File().Fd()), &st) == nil {
		seen[st.Ino] = true
	}
	var all []string
	for _, path := range slices.Concat(named, pids) {
		ns, err := OpenNetns(path)
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

// ProcessOf tells who a process is.
func ProcessOf(pid int) Owner { return process(fmt.Sprintf("/proc/%d", pid)) }
