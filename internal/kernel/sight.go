package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairlead/internal/kernel/steer"
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
}

// NetLinks returns the links of the host's namespace.
func (h *Host) NetLinks() ([]NetLink, error) {
	defer h.Release()
	handle, err := h.at("")
	if err != nil {
		return nil, err
	}
	list, err := retry(handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	addresses, err := retry(func() ([]netlink.Addr, error) { return handle.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	links := make([]NetLink, len(list))
	for i, l := range list {
		a := l.Attrs()
		links[i] = NetLink{Name: a.Name, Index: a.Index, Kind: l.Type(), Up: isUp(l), MTU: a.MTU, MAC: a.HardwareAddr.String(),
			Parent: a.ParentIndex, ParentNetns: a.NetNsID, Owner: owner(l)}
		if a.RawFlags&unix.IFF_LOOPBACK != 0 {
			links[i].Kind = string(plan.Loopback)
		}
		if m, ok := l.(*netlink.Macvlan); ok {
			links[i].Private = m.Mode != netlink.MACVLAN_MODE_BRIDGE
		}
		if links[i].Bridge, links[i].Hairpin = h.readPort(handle, l); links[i].Bridge == a.Name {
			links[i].Bridge = ""
		}
		for _, addr := range addresses {
			if addr.LinkIndex == a.Index {
				links[i].Addresses = append(links[i].Addresses, toPrefix(addr.IP, addr.Mask))
			}
		}
	}
	return links, nil
}

// NamespaceID is what the host's namespace calls the one at path, false where
// it has no name for it.
func (h *Host) NamespaceID(path string) (int, bool) {
	ns, err := OpenNetns(path)
	if err != nil {
		return NoSandbox, false
	}
	defer ns.Close()
	defer h.Release()
	handle, err := h.at("")
	if err != nil {
		return NoSandbox, false
	}
	id, err := handle.GetNetNsIdByFd(int(ns.File().Fd()))
	return id, err == nil && id >= 0
}

// RouteQuery asks where a packet goes.
type RouteQuery struct {
	To netip.Addr
	// From is its source; the zero value leaves that to the kernel.
	From netip.Addr
	// In is the link by which it came; empty for the host's own.
	In string
}

// RouteFound is the kernel's answer.
type RouteFound struct {
	// Type is RTN_LOCAL, RTN_UNICAST, RTN_BROADCAST …
	Type int
	// To is the entry that decided, e.g. 0.0.0.0/0; the zero value where the
	// kernel does not tell.
	To   netip.Prefix
	Via  netip.Addr
	Link string
	// Src is the address that the host speaks from.
	Src   netip.Addr
	Table int
}

// ErrNoRoute says why the kernel leads a packet nowhere.
type ErrNoRoute struct {
	Why   string
	cause error
}

// Error implements error.
func (e *ErrNoRoute) Error() string { return e.Why }

// Unwrap returns the kernel's own word.
func (e *ErrNoRoute) Unwrap() error { return e.cause }

// noRoutes are the kernel's words for it (fib_props in fib_semantics.c, and
// __fib_validate_source).
var noRoutes = map[unix.Errno]string{
	unix.ENETUNREACH:  "no route to the destination",
	unix.EHOSTUNREACH: "an unreachable route, or forwarding is off",
	unix.EACCES:       "a prohibit route",
	unix.EINVAL:       "a blackhole route, or an address that may not come from there (a martian)",
	unix.EXDEV:        "the source may not come in by that link (rp_filter)",
}

// RouteTo asks the kernel where a packet goes (RTM_GETROUTE, `ip route get`).
func (h *Host) RouteTo(q RouteQuery) (RouteFound, error) {
	defer h.Release()
	handle, err := h.at("")
	if err != nil {
		return RouteFound{}, err
	}
	opt := &netlink.RouteGetOptions{Iif: q.In}
	if q.From.IsValid() {
		opt.SrcAddr = q.From.AsSlice()
	}
	list, err := handle.RouteGetWithOptions(q.To.AsSlice(), opt)
	var number unix.Errno
	if errors.As(err, &number) && noRoutes[number] != "" {
		return RouteFound{}, &ErrNoRoute{noRoutes[number], err}
	}
	if err != nil || len(list) == 0 {
		return RouteFound{}, fmt.Errorf("ask for the route to %s: %w", q.To, err)
	}
	found := RouteFound{Type: list[0].Type, Table: list[0].Table}
	found.Via, _ = address(list[0].Gw)
	if via, ok := list[0].Via.(*netlink.Via); ok {
		found.Via, _ = address(via.Addr)
	}
	found.Src, _ = address(list[0].Src)
	if l, err := handle.LinkByIndex(list[0].LinkIndex); err == nil {
		found.Link = l.Attrs().Name
	}
	// IPv6 answers a prohibited or missing route as a route of that type.
	switch list[0].Type {
	case unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_BLACKHOLE:
		return found, &ErrNoRoute{map[int]string{unix.RTN_UNREACHABLE: "no route to the destination", unix.RTN_PROHIBIT: "a prohibit route", unix.RTN_BLACKHOLE: "a blackhole route"}[list[0].Type], nil}
	}
	opt.FIBMatch = true
	if entry, err := handle.RouteGetWithOptions(q.To.AsSlice(), opt); err == nil && len(entry) > 0 {
		if entry[0].Dst != nil {
			found.To = toPrefix(entry[0].Dst.IP, entry[0].Dst.Mask)
		}
		found.Table = entry[0].Table
	}
	return found, nil
}

func address(ip []byte) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(ip)
	return a.Unmap(), ok
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

// Steering is what our eBPF programs do, and where they are attached.
type Steering struct {
	Leads    []plan.Lead
	Grants   []plan.Grant
	Programs []Program
}

// Steering looks at the eBPF data plane, whichever process has set it up, and
// changes nothing.
func (h *Host) Steering() (Steering, error) {
	leads, grants, err := h.Steered()
	if err != nil {
		return Steering{}, err
	}
	found := Steering{Leads: leads, Grants: grants}
	err = h.sight(func(s *steer.Sight) error {
		if h.steering != nil {
			found.Leads = h.ownLeads()
		}
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
	slices.SortFunc(found.Leads, func(a, b plan.Lead) int { return strings.Compare(a.Key(), b.Key()) })
	return found, err
}

// ownLeads are those of the plane that this process has.
func (h *Host) ownLeads() []plan.Lead {
	var all []plan.Lead
	for _, l := range h.steering.Table().Leads() {
		if l.Flags&steer.LeadGrant == 0 {
			all = append(all, h.leadObject(l))
		}
	}
	return all
}

// LedFlows returns the flows that our eBPF programs remember now.
func (h *Host) LedFlows() (all []steer.Flow, err error) {
	err = h.sight(func(s *steer.Sight) error {
		return s.Flows(func(f steer.Flow) { all = append(all, f) })
	})
	return all, err
}

// sight calls fn with the plane if there is one: ours, or the pinned one.
func (h *Host) sight(fn func(*steer.Sight) error) error {
	h.bpf.Lock()
	defer h.bpf.Unlock()
	defer h.Release()
	if h.steering != nil {
		return fn(h.steering.Sight())
	}
	if h.opt.Pins == "" {
		return nil
	}
	cookie, err := h.cookie()
	if err != nil {
		return err
	}
	s, err := steer.Look(h.pins(cookie))
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
	seen := map[string]bool{}
	if own, err := os.Readlink("/proc/self/fd/" + fmt.Sprint(h.ns.File().Fd())); err == nil {
		seen[own] = true
	}
	var all []string
	for _, path := range slices.Concat(named, pids) {
		ns, err := OpenNetns(path)
		if err != nil {
			continue
		}
		inode, err := os.Readlink("/proc/self/fd/" + fmt.Sprint(ns.File().Fd()))
		ns.Close()
		if err == nil && !seen[inode] {
			seen[inode] = true
			all = append(all, path)
		}
	}
	return all
}

// Path returns a path to the host's namespace that is valid in this process
// only.
func (h *Host) Path() string { return h.ns.Path() }
