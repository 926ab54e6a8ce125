package rig

import (
	"context"
	"net/netip"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/model"
)

// Maker makes one path, and knows how clients reach its workload and which
// counters prove that packets took it. Engine makes Fairlead's paths. The package
// peer has one maker per peer, which embeds Base or Engine for what it does not
// change.
type Maker interface {
	// Needs returns what the path needs in addition to kernel features.
	Needs() Needs
	// Start makes the path in the rig's world. What it leaves there, it registers
	// with Keep and Undo, also if it returns an error.
	Start(ctx context.Context, r *Rig) error
	// Dial returns the address that the client dials for a port of the workload.
	Dial(c result.Client, port uint16) netip.AddrPort
	// Links returns the links that all of the client's traffic must pass.
	Links(c result.Client) []Link
	// Count reads the counters that Proof compares, except those of the links.
	Count(ctx context.Context, r *Rig, n *Counters) error
	// Proof returns the proof of a run whose traffic has passed the links: links,
	// or a stronger proof.
	Proof(w Window, links *result.Proof) *result.Proof
}

// Needs is what a path needs in addition to kernel features.
type Needs struct {
	// Programs are the external programs.
	Programs []Program
	// Cgroup is the reason why the path needs cgroups; empty if it does not.
	Cgroup string
	// Static: this binary runs in containers, so it must be statically linked.
	Static bool
}

// Program is an external program and its Debian package; if there is none, Source says
// where to get it. A CNI plugin has the name cni/PLUGIN.
type Program struct{ Name, Package, Source string }

// Containers is implemented by makers whose workload is in a container, which an
// engine starts.
type Containers interface {
	// StartServer starts the generator's server in a container, whose sandbox is
	// then the workload's.
	StartServer(ctx context.Context, r *Rig) (*load.Server, error)
	// StartClient starts a client of the generator in a container: in another one of the
	// path's network or of another network, or, as Outbound, beside the server in its
	// sandbox.
	StartClient(ctx context.Context, r *Rig, c result.Client) (*load.Client, error)
	// StartAnswerer starts a container that publishes the rig's number of ports and
	// sends the answer on the last one. It returns the address to which a client
	// sends.
	StartAnswerer(ctx context.Context, r *Rig, proto model.Proto, answer string) (Container, netip.AddrPort, error)
	// Memory returns the memory of the engine.
	Memory(r *Rig) (Memory, error)
	// StartProof checks which processes publish the rig's ports.
	StartProof(r *Rig, m Memory) *result.Proof
}

// Joining is implemented by makers that also make something on the client host.
type Joining interface {
	// Join makes it, after Start if the rig has both hosts.
	Join(ctx context.Context, r *Rig) error
}

// Changing is implemented by makers of gateways whose configuration can be changed
// while they serve.
type Changing interface {
	// Change changes the configuration for the nth time.
	Change(r *Rig, n int) error
	// Changed reports whether the gateway uses the nth change.
	Changed(r *Rig, n int) (bool, error)
}

// Container is a container that runs.
type Container interface {
	// End makes the container end, and waits until the engine has removed it.
	End() error
}

// Memory is the memory in bytes of a container engine, without its containers.
type Memory struct {
	// Publish is the part of the processes that publish ports.
	All, Publish float64
	// Proxies counts the docker-proxy processes.
	Proxies int
}

// Base has what most makers share. It is for a path of which other programs create
// everything: the workload is in the sandbox Workload, and only the links in it
// and on the wire are known.
type Base struct{ Path suite.Path }

// Needs implements Maker.
func (*Base) Needs() Needs { return Needs{} }

// Dial implements Maker.
func (b *Base) Dial(c result.Client, port uint16) netip.AddrPort {
	at := siteOf(b.Path)
	switch {
	case c == result.Outbound:
		return netip.AddrPortFrom(b.outside(), port)
	case b.Path.Direct && (c != result.Remote && c != result.OtherNetwork || !at.hidden):
		return netip.AddrPortFrom(at.address, port)
	case b.Path.Plane != "":
		return netip.AddrPortFrom(b.Addresses().Virtual, port)
	}
	return netip.AddrPortFrom(b.Addresses().Server, port)
}

// Links implements Maker.
func (b *Base) Links(c result.Client) []Link {
	if c == result.Outbound {
		return b.OutboundLinks()
	}
	if carrierOf(b.Path).bypasses(c) {
		return nil
	}
	return siteOf(b.Path).links(c)
}

// Count implements Maker.
func (b *Base) Count(ctx context.Context, r *Rig, n *Counters) (err error) {
	if b.Path.Outbound == model.OutboundEBPF {
		n.translated, err = r.World.OutboundBytes()
		return err
	}
	return carrierOf(b.Path).count(ctx, r, n)
}

// Proof implements Maker.
func (b *Base) Proof(w Window, links *result.Proof) *result.Proof {
	if w.Client == result.Outbound {
		return b.outboundProof(w, links)
	}
	if p := carrierOf(b.Path).proof(w); p != nil {
		return p
	}
	if b.Path.Tracked {
		flows := uint64(w.After.Flows)
		return &result.Proof{Counter: "flows in conntrack", Want: 1, Got: flows, OK: flows > 0}
	}
	return links
}

// Addresses returns the addresses of the path's family.
func (b *Base) Addresses() *Addresses { return AddressesOf(b.Path.Family) }

// Addr returns the workload's address in its sandbox.
func (b *Base) Addr() netip.Addr { return siteOf(b.Path).address }

// Routed reports whether the client host has a route to the sandboxes.
func (b *Base) Routed() bool { return siteOf(b.Path).routed }

// InHost reports whether the workload is a process in the host's network
// namespace.
func (b *Base) InHost() bool { return siteOf(b.Path).inHost }
