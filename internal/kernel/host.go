// Package kernel is the only door to the kernel's network state: it sets,
// removes and reads the objects of a plan in a network namespace, and says
// what the kernel can do. It decides nothing; drivers and ways to publish
// do, and the engine orders the steps.
package kernel

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/plan"

	"github.com/google/nftables"
	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Host is a network namespace that the engine runs. It is safe for
// concurrent use.
type Host struct {
	mu      sync.Mutex
	ns      *Netns
	handles map[string]*netlink.Handle
	seen    dumpCache
	// devices holds, by the plan's key, where the host's devices are that
	// sandboxes have.
	devices map[string]movedDevice
	// recorded holds what the record says of them, by plan.Device.Device.
	recorded map[string]recordedDevice
	// nft is nil on a kernel without nftables; noNft is then why.
	nft   *carefulNft
	noNft error
	// nftPort is the netlink port of nft, by which the kernel says that a
	// change was ours, and nftConn its connection.
	nftPort uint32
	nftConn *mdlayher.Conn
	// bpf guards the eBPF data plane, which is nil until something needs it.
	bpf       sync.Mutex
	ebpfState *ebpf.Datapath
	// resting is a plane that nothing needs at the moment.
	resting *ebpf.Datapath
	// fast holds why uplinks that the fast path is for do not have it, nil for
	// those that do; nil until it was set.
	fast map[string]error
	opt  Options
	// balancer is the kernel's IPVS.
	balancer balancer
	// legacy are the filter tables of iptables-legacy.
	legacy [2]legacyTable
	ended  ended
}

// Options say what a host's eBPF programs need beside its namespace.
type Options struct {
	// Pins is the directory in a bpffs below which the host's eBPF programs
	// are pinned, so that they outlive us; empty means that they go with us.
	Pins string
	// Rest keeps the programs loaded, unpinned and attached to nothing, when
	// nothing needs them any more: to load them takes longer than all else that
	// a publish does.
	Rest bool
	// XDP says which uplinks get the fast path.
	XDP XDP
	// LooseSources lets eBPF programs accept a client's packet by an uplink if any
	// uplink leads back to the client. By default that uplink must.
	LooseSources bool
	// Refused is told once of each that cannot have it; nil is fine.
	Refused func(link string, why error)
	// LeaveDocker leaves Docker's firewall as it is, also where it drops the
	// packets of Fairlead's networks.
	LeaveDocker bool
	// Cgroup is the cgroup v2 directory whose processes' sockets are led;
	// empty means the root of the hierarchy.
	Cgroup string
}

// Open opens the host's network namespace at path; empty means our own. A
// kernel without nftables is no reason to fail: not every path needs it.
func Open(path string, opt Options) (*Host, error) {
	ns, err := OpenNetns(path)
	if err != nil {
		return nil, err
	}
	h := &Host{ns: ns, handles: map[string]*netlink.Handle{}, devices: map[string]movedDevice{}, opt: opt}
	if ns.unprivileged {
		h.noNft = errors.New("firewall rules: root is needed to read them")
		return h, nil
	}
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns.File().Fd())), nftables.AsLasting(),
		nftables.WithSockOptions(largeBuffers), nftables.WithSockOptions(func(c *mdlayher.Conn) (err error) {
			h.nftConn = c
			h.nftPort, err = portOf(c)
			return err
		}))
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT):
		h.noNft = fmt.Errorf("the kernel has no nftables: %w", err)
	case err != nil:
		return nil, errors.Join(fmt.Errorf("open nftables: %w", err), ns.Close())
	default:
		h.nft = &carefulNft{conn}
	}
	return h, nil
}

// Close lets go of every handle and leaves the kernel's state as it is.
func (h *Host) Close() error {
	h.Release()
	if nl := h.handles[""]; nl != nil {
		nl.Close()
	}
	var errs []error
	for _, p := range h.devices {
		errs = append(errs, p.ns.Close())
	}
	for _, p := range []*ebpf.Datapath{h.ebpfState, h.resting} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	errs = append(errs, h.balancer.close())
	if h.nft != nil {
		errs = append(errs, h.nft.CloseLasting())
	}
	return errors.Join(append(errs, h.ns.Close())...)
}

// Netns returns the host's namespace; it stays owned by h.
func (h *Host) Netns() *os.File { return h.ns.File() }

// Release closes the handles into sandboxes, so that we never keep a dead
// sandbox's namespace alive, and forgets what was seen.
// It is for who applies plans, one at a time; who looks meanwhile has a host
// aside.
func (h *Host) Release() {
	h.balancer.forget()
	h.mu.Lock()
	defer h.mu.Unlock()
	for path, nl := range h.handles {
		if path != "" { // others may be using the host's, which keeps nothing alive
			nl.Close()
			delete(h.handles, path)
		}
	}
	h.seen = dumpCache{}
}

// at returns a route netlink handle into the namespace at path (empty: the
// host's).
func (h *Host) at(path string) (*netlink.Handle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if nl, ok := h.handles[path]; ok {
		return nl, nil
	}
	ns, err := h.open(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	if path == "" && h.ns.unprivileged {
		nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return nil, fmt.Errorf("open netlink: %w", err)
		}
		h.handles[path] = nl
		return nl, nil
	}
	nl, err := netlink.NewHandleAt(netns.NsHandle(ns.File().Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink in %s: %w", path, err)
	}
	h.handles[path] = nl
	return nl, nil
}

// open opens the namespace at path, or the host's again when empty.
func (h *Host) open(path string) (*Netns, error) {
	if path == "" && !h.ns.unprivileged {
		path = h.ns.Path()
	}
	return OpenNetns(path)
}

// Set brings a link, address, route, sysctl or eBPF attachment to the wanted state; setting
// it twice is harmless.
func (h *Host) Set(o plan.Object) error {
	var err error
	switch o := o.(type) {
	case plan.Link:
		err = h.setLink(o)
	case plan.SubLink:
		err = h.setSubLink(o)
	case plan.Address:
		err = h.setAddress(o)
	case plan.Route:
		err = h.setRoute(o)
	case plan.Sysctl:
		err = h.WriteSysctl(o)
	case plan.Shaper:
		err = h.setShaper(o)
	case plan.Device:
		err = h.setDevice(o)
	case plan.IPoIB:
		err = h.setIPoIB(o)
	case plan.StaleLink: // nobody knows how to make it
	case plan.Tunnel:
		err = h.setTunnel(o)
	case plan.Forwarding:
		err = h.setForwarding(o)
	case plan.Neighbor:
		err = h.setNeighbor(o)
	case plan.WireGuard:
		err = h.setWireGuard(o)
	case plan.WireGuardPeer:
		err = h.setWireGuardPeer(o)
	case plan.NoTrack:
		err = h.setNoTrack(o)
	case plan.VirtualAddress:
		err = h.setVirtual(o)
	case plan.Guard:
		err = h.setGuard(o)
	case plan.IPVSService:
		err = h.setIPVS(o)
	case plan.IPVSTable:
		err = h.setIPVSTable()
	case plan.IPVSMember:
		err = h.setIPVSMember(o)
	case plan.LocalRoute:
		err = h.setLocalRoute(o)
	case plan.FilterChain:
		err = h.setFilter(o)
	case plan.Uplinks, plan.LocalRealEgress, plan.FastPath, plan.Ingress, plan.LocalClients, plan.BindHooks:
		h.bpf.Lock()
		defer h.bpf.Unlock()
		err = h.setBPF(o)
	default:
		err = fmt.Errorf("%T is not set one by one", o)
	}
	if err != nil {
		return fmt.Errorf("set %s: %w", o.Key(), err)
	}
	return nil
}

// Del removes a link, address, route or eBPF attachment; removing what is absent succeeds. A
// sysctl is never removed but written back by whoever knows its old value.
func (h *Host) Del(o plan.Object) error {
	var err error
	switch o := o.(type) {
	case plan.Link:
		err = h.delLink(o)
	case plan.SubLink:
		err = h.delSubLink(o)
	case plan.Address:
		err = h.delAddress(o)
	case plan.Route:
		err = h.delRoute(o)
	case plan.Shaper:
		err = h.delShaper(o)
	case plan.Device:
		err = h.delDevice(o)
	case plan.IPoIB:
		err = h.delIPoIB(o)
	case plan.StaleLink:
		err = h.delLink(plan.Link{Netns: o.Netns, Name: o.Name})
	case plan.Tunnel:
		err = h.delLink(plan.Link{Name: o.Name})
	case plan.Forwarding:
		err = h.delForwarding(o)
	case plan.Neighbor:
		err = h.delNeighbor(o)
	case plan.WireGuard:
		err = h.delLink(plan.Link{Name: o.Name})
	case plan.WireGuardPeer:
		err = h.delWireGuardPeer(o)
	case plan.NoTrack:
		err = h.delNoTrack(o)
	case plan.VirtualAddress:
		err = h.delVirtual(o)
	case plan.Guard:
		err = h.delGuard()
	case plan.IPVSService:
		err = h.delIPVS(o)
	case plan.IPVSTable:
		err = h.delIPVSTable()
	case plan.IPVSMember:
		err = h.delIPVSMember(o)
	case plan.LocalRoute:
		err = h.delLocalRoute(o)
	case plan.FilterChain:
		err = h.delFilter(o)
	case plan.Uplinks, plan.LocalRealEgress, plan.FastPath, plan.Ingress, plan.LocalClients, plan.BindHooks:
		h.bpf.Lock()
		defer h.bpf.Unlock()
		err = h.delBPF(o)
	default:
		err = fmt.Errorf("%T is not removed one by one", o)
	}
	if err != nil && !absent(err) {
		return fmt.Errorf("remove %s: %w", o.Key(), err)
	}
	return nil
}

// absent reports whether the error says that the thing, or the namespace or
// link that held it, is gone already.
func absent(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing) || errors.Is(err, os.ErrNotExist) ||
		errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV)
}

// Do runs fn on a thread of its own inside the host's namespace.
func (h *Host) Do(fn func() error) error { return h.ns.Do(fn) }

// LinkBytes returns the bytes that a link has received and sent, in the
// namespace at path (empty: the host's).
func (h *Host) LinkBytes(path, name string) (uint64, error) {
	_, link, err := h.link(path, name)
	if err != nil {
		return 0, fmt.Errorf("read counters of link %s: %w", name, err)
	}
	s := link.Attrs().Statistics
	return s.RxBytes + s.TxBytes, nil
}
