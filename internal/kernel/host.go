// Package kernel is a host as the engine sees it: the table of object kinds, whose
// work the packages below carry out, and the probe of the kernel's features. Only
// these packages access the kernel's network state. They make no decisions: drivers
// and publish modes decide which objects exist, and the engine decides the order of
// the steps.
package kernel

import (
	"errors"
	"os"
	"sync/atomic"

	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/iptables"
	"fairlead/internal/kernel/ipvs"
	"fairlead/internal/kernel/loopback"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nft"
	"fairlead/internal/kernel/rawtcp"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/device"
	"fairlead/internal/kernel/rtnl/handles"
	"fairlead/internal/kernel/rtnl/link"
	"fairlead/internal/kernel/rtnl/tunnel"
	"fairlead/internal/kernel/virtual"
	"fairlead/internal/kernel/watch"
	"fairlead/internal/plan"
)

// Host is a network namespace that the engine manages. Its methods are safe for
// concurrent use unless their comments say that only the goroutine that applies
// plans may call them.
type Host struct {
	ns       *netns.Namespace
	rtnl     *rtnl.Reader
	links    *link.Handle
	tunnels  *tunnel.Handle
	moved    *device.Handle
	nft      *nft.Handle
	iptables *iptables.Handle
	ebpf     *datapath.Handle
	ipvs     *ipvs.Handle
	tcp      *rawtcp.Handle
	inspect  *inspect.Reader
	// pins is Options.Pins.
	pins     string
	programs verdicts
	hooks    hookPrograms
	// watcher is that of the last call of Watch.
	watcher atomic.Pointer[watch.Watcher]
}

// Options configure a Host.
type Options struct {
	// Pins is the directory in a bpffs below which the eBPF programs and maps are
	// pinned, so that they outlive the process. If empty, they end with the
	// process.
	Pins string
	// Rest keeps unused programs loaded, unpinned and detached. Loading them takes
	// longer than the rest of a publish.
	Rest bool
	// XDP selects the uplinks that get the fast path.
	XDP datapath.XDP
	// LooseSources makes the eBPF programs accept a packet from a client on an
	// uplink if the route back to the client uses any uplink. By default it must
	// use the same uplink.
	LooseSources bool
	// Refused is called once for each link that cannot have the fast path. It may
	// be nil.
	Refused func(link string, why error)
	// OverlayRefused is called when the eBPF programs of overlays cannot run at a
	// VXLAN link, and the kernel handles its frames. It may be nil.
	OverlayRefused func(link string, why error)
	// LeaveDocker leaves Docker's firewall unchanged, even if it drops packets of
	// Fairlead's networks.
	LeaveDocker bool
	// Cgroup is the cgroup v2 directory whose sockets the port mappings apply to.
	// If empty, it is the root of the hierarchy.
	Cgroup string
}

// Open opens the host's network namespace at path; "" means the process's own. A
// kernel without nftables is not an error, because not every path needs it.
func Open(path string, opt Options) (*Host, error) {
	ns, err := netns.Open(path)
	if err != nil {
		return nil, err
	}
	cache := handles.New(ns)
	reader := rtnl.New(cache)
	links := link.New(cache, reader)
	h := &Host{ns: ns, rtnl: reader, links: links, tunnels: tunnel.New(links), moved: device.New(links),
		ipvs: ipvs.New(ns), tcp: rawtcp.New(reader), pins: opt.Pins,
		programs: verdicts{of: map[plan.Feature]string{}}}
	h.ebpf = datapath.New(reader, h.tcp, datapath.Options{Pins: opt.Pins, Rest: opt.Rest, XDP: opt.XDP,
		LooseSources: opt.LooseSources, Refused: opt.Refused, OverlayRefused: opt.OverlayRefused,
		Cgroup: opt.Cgroup})
	if h.nft, err = nft.Open(reader); err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	h.inspect = inspect.New(reader, h.nft, h.ebpf, h.ipvs)
	h.iptables = iptables.New(reader, h.nft, opt.LeaveDocker)
	return h, nil
}

// Close closes every handle and leaves the kernel's state unchanged.
func (h *Host) Close() error {
	h.Release()
	h.links.Cache.Close()
	return errors.Join(h.moved.Close(), h.ebpf.Close(), h.ipvs.Close(), h.nft.Close(), h.ns.Close())
}

// Netns returns the host's namespace. The file belongs to h: do not close it.
func (h *Host) Netns() *os.File { return h.ns.File() }

// Release closes the handles into sandboxes, which would keep a dead sandbox's
// namespace alive, and clears the cached state. Only the goroutine that applies
// plans may call it. Concurrent readers have their own handles (Inspect).
func (h *Host) Release() {
	h.rtnl.Release()
	h.nft.Release()
	h.ipvs.Release()
	h.ebpf.Release()
}

// Do runs fn on a separate thread in the host's namespace.
func (h *Host) Do(fn func() error) error { return h.ns.Do(fn) }

// Virtual returns a Handle for the virtual addresses of a cluster. It must be ended before
// the Host is closed.
func (h *Host) Virtual() (*virtual.Handle, error) { return virtual.New(h.ns, h.pins) }

// Loopback returns a Handle for addresses of the host's loopback link. It must be closed before the Host.
func (h *Host) Loopback() (*loopback.Handle, error) { return loopback.New(h.ns) }
