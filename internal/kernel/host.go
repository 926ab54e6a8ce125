// Package kernel is the only package that accesses the kernel's network state. It
// sets, removes and reads the objects of a plan in a network namespace, and probes
// which features the kernel has. It makes no decisions: drivers and publish modes
// decide which objects exist, and the engine decides the order of the steps.
package kernel

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/rawtcp"

	"github.com/google/nftables"
	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Host is a network namespace that the engine manages. Its methods are safe for
// concurrent use unless their comments say that only the goroutine that applies
// plans may call them.
type Host struct {
	mu      sync.Mutex
	ns      *netns.Namespace
	handles map[string]*netlink.Handle
	seen    dumpCache
	// devices are the host's devices that this process has moved into sandboxes, by
	// the plan object's key.
	devices map[string]movedDevice
	// recorded are the recorded states of moved devices, by plan.Device.Device.
	recorded map[string]recordedDevice
	// nft is nil on a kernel without nftables; noNft is then the reason.
	nft   *carefulNft
	noNft error
	// nftPort is the netlink port of nft. With it the kernel marks the changes that
	// this process has made. nftConn is nft's connection.
	nftPort uint32
	nftConn *mdlayher.Conn
	// bpf guards the eBPF data path, which is nil until it is needed.
	bpf       sync.Mutex
	ebpfState *ebpf.Datapath
	// resting is a loaded data path that is currently not needed.
	resting *ebpf.Datapath
	// fast has an entry for each uplink that the fast path was selected for: the
	// reason why it is not attached, or nil if it is. It is nil until the fast path
	// was set.
	fast map[string]error
	opt  Options
	// balancer is the state of IPVS.
	balancer balancer
	// legacy are the filter tables of iptables-legacy.
	legacy [2]legacyTable
	tcp    *rawtcp.Handle
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
	XDP XDP
	// LooseSources makes the eBPF programs accept a packet from a client on an
	// uplink if the route back to the client uses any uplink. By default it must
	// use the same uplink.
	LooseSources bool
	// Refused is called once for each link that cannot have the fast path. It may
	// be nil.
	Refused func(link string, why error)
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
	h := &Host{ns: ns, handles: map[string]*netlink.Handle{}, devices: map[string]movedDevice{}, opt: opt,
		tcp: rawtcp.New(ns)}
	if ns.Unprivileged() {
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

// Close closes every handle and leaves the kernel's state unchanged.
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

// Netns returns the host's namespace. The file belongs to h: do not close it.
func (h *Host) Netns() *os.File { return h.ns.File() }

// Release closes the handles into sandboxes, which would keep a dead sandbox's
// namespace alive, and clears the cached state. Only the goroutine that applies
// plans may call it. Concurrent readers use a read-only Host.
func (h *Host) Release() {
	h.balancer.forget()
	h.mu.Lock()
	defer h.mu.Unlock()
	for path, nl := range h.handles {
		if path != "" { // the host's handle may be in use and keeps no sandbox alive
			nl.Close()
			delete(h.handles, path)
		}
	}
	h.seen = dumpCache{}
}

// at returns an rtnetlink handle for the namespace at path; "" means the host's.
func (h *Host) at(path string) (*netlink.Handle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if nl, ok := h.handles[path]; ok {
		return nl, nil
	}
	ns, err := h.ns.Open(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	nl, err := ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink in %s: %w", path, err)
	}
	h.handles[path] = nl
	return nl, nil
}

// absent reports whether the error means that the object, or the namespace or link
// that contains it, does not exist.
func absent(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing) || errors.Is(err, os.ErrNotExist) ||
		errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV)
}

// Do runs fn on a separate thread in the host's namespace.
func (h *Host) Do(fn func() error) error { return h.ns.Do(fn) }

// LinkBytes returns the sum of the bytes that a link has received and sent, in the
// namespace at path; "" means the host's.
func (h *Host) LinkBytes(path, name string) (uint64, error) {
	_, link, err := h.link(path, name)
	if err != nil {
		return 0, fmt.Errorf("read counters of link %s: %w", name, err)
	}
	s := link.Attrs().Statistics
	return s.RxBytes + s.TxBytes, nil
}
