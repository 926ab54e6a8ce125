package kernel

import (
	"context"
	"errors"
	"fmt"

	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/iptables"
	"fairlead/internal/kernel/ipvs"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nft"
	"fairlead/internal/kernel/rawtcp"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/device"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/kernel/watch"
	"fairlead/internal/plan"
)

// Sockets returns the reader of the sockets in the host's namespace.
func (h *Host) Sockets() *sockdiag.Reader { return sockdiag.New(h.ns) }

// EndFlows ends the connections in Fairlead's flowtable: the next packet of each passes the
// host's rules. It reports whether there is a flowtable.
func (h *Host) EndFlows() (bool, error) { return h.nft.EndFlows() }

// Conntrack returns the host's conntrack table. Deletions of entries end the connections in
// Fairlead's flowtable. If that cannot be created again, the watcher notes it for the repair.
func (h *Host) Conntrack() *conntrack.Table {
	return conntrack.Open(h.ns).Within(func(fn func(bool) error) error {
		unrestored, err := nft.WithoutFlows(h.nft, fn)
		if w := h.watcher.Load(); unrestored != nil && w != nil {
			w.NoteTable(plan.FlowtableName)
			return err
		}
		return errors.Join(err, unrestored)
	})
}

// TCP returns what resets TCP connections.
func (h *Host) TCP() *rawtcp.Handle { return h.tcp }

// Net returns the reader of the host's links, addresses, routes and neighbours.
func (h *Host) Net() *rtnl.Reader { return h.rtnl }

// Devices returns what moves devices into sandboxes.
func (h *Host) Devices() *device.Handle { return h.moved }

// NFT returns the host's nftables.
func (h *Host) NFT() *nft.Handle { return h.nft }

// IPTables returns the filter tables of iptables on the host.
func (h *Host) IPTables() *iptables.Handle { return h.iptables }

// EBPF returns the host's eBPF data path.
func (h *Host) EBPF() *datapath.Handle { return h.ebpf }

// IPVS returns Fairlead's virtual services of IPVS.
func (h *Host) IPVS() *ipvs.Handle { return h.ipvs }

// Inspect returns the reader of the host's state.
func (h *Host) Inspect() *inspect.Reader { return h.inspect }

// Watch records changes of the host's network until ctx ends.
func (h *Host) Watch(ctx context.Context) (*watch.Watcher, error) {
	w, err := watch.New(ctx, watch.Config{Net: h.rtnl, NFT: h.nft, EBPF: h.ebpf.Check,
		IPVS: []func() (bool, error){h.links.LocalRoutesDiffer, h.ipvs.Differs}, Legacy: h.iptables.FilterHash,
		Unreported: h.unreported, Concerns: concerns})
	h.watcher.Store(w)
	return w, err
}

// DescribeSandbox reads the state of the sandbox at path. First it assigns an id to
// the namespace if the host has none for it, so that the kernel reports the
// namespace's end (WatchSandboxes). The error wraps os.ErrNotExist if there is no
// namespace at path.
func (h *Host) DescribeSandbox(path string) (inspect.Sandbox, error) {
	if err := h.links.AssignID(path); err != nil {
		return inspect.Sandbox{}, fmt.Errorf("inspect sandbox %s: %w", path, err)
	}
	s, err := h.inspect.DescribeSandbox(path)
	if err == nil && s.ID == netns.NoID {
		err = fmt.Errorf("inspect sandbox %s: another network namespace is there now", path)
	}
	return s, err
}

// WatchSandboxes returns a channel that gets the id of each namespace that ends;
// see watch.Namespaces.
func (h *Host) WatchSandboxes(ctx context.Context) (<-chan int, error) {
	return watch.Namespaces(ctx, h.ns)
}
