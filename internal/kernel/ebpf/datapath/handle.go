// Package datapath sets, deletes and reads the objects of plans that are in the eBPF
// data path of a host: attached programs, port mappings, grants and services.
package datapath

import (
	"errors"
	"sync"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rawtcp"
	"fairlead/internal/kernel/rtnl"
)

// Options configure a Handle.
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
	// OverlayRefused is called when the programs of overlays cannot run at a VXLAN
	// link, and the kernel handles its frames. It may be nil.
	OverlayRefused func(link string, why error)
	// Cgroup is the cgroup v2 directory whose sockets the port mappings apply to.
	// If empty, it is the root of the hierarchy.
	Cgroup string
}

// Handle is the eBPF data path of a host. Its methods are safe for concurrent use
// unless their comments say that the caller must lock it.
type Handle struct {
	ns   *netns.Namespace
	rtnl *rtnl.Reader
	tcp  *rawtcp.Handle
	opt  Options

	// mu guards the eBPF data path, which is nil until it is needed.
	mu        sync.Mutex
	ebpfState *ebpf.Datapath
	// resting is a loaded data path that is currently not needed, or not yet.
	resting *ebpf.Datapath
	// fast has an entry for each uplink that the fast path was selected for: the
	// reason why it is not attached, or nil if it is. It is nil until the fast path
	// was set.
	fast    map[string]error
	recount recount
	sweep   sweep
	// exhausted is what Exhausted has returned.
	exhausted exhausted
	// overlays are the programs at VXLAN links.
	overlays *Overlays

	// seenLinks are the indices of the links that a program is attached to, by the
	// program's name, cached while one observation runs.
	seenLinks nlutil.Seen[string, map[int]bool]
}

// New returns a Handle. It loads programs when they are first needed. The
// connections that it resets are noted in tcp.
func New(r *rtnl.Reader, tcp *rawtcp.Handle, opt Options) *Handle {
	h := &Handle{ns: r.Netns(), rtnl: r, tcp: tcp, opt: opt}
	h.overlays = &Overlays{h: h}
	return h
}

// Overlays returns the programs at VXLAN links.
func (h *Handle) Overlays() *Overlays { return h.overlays }

// Lock keeps others from changing the data path while the caller reads several
// objects of it.
func (h *Handle) Lock() { h.mu.Lock() }

// Unlock ends what Lock began.
func (h *Handle) Unlock() { h.mu.Unlock() }

// Loaded returns the loaded data path; nil if there is none.
func (h *Handle) Loaded() *ebpf.Datapath { return h.ebpfState }

// Rests reports whether a loaded data path is currently not needed.
func (h *Handle) Rests() bool { return h.resting != nil }

// Options returns the options, which may be changed while nothing is attached.
func (h *Handle) Options() *Options { return &h.opt }

// Release clears the cached state.
func (h *Handle) Release() { h.seenLinks.Forget() }

// Close closes the programs and maps, and leaves pinned ones in the kernel.
func (h *Handle) Close() error {
	var errs []error
	for _, p := range []*ebpf.Datapath{h.ebpfState, h.resting} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	if h.overlays.programs != nil {
		errs = append(errs, h.overlays.programs.Close())
	}
	return errors.Join(errs...)
}
