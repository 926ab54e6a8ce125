package rig

import (
	"context"
	"errors"
	"net/netip"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/paths"
)

// carrier is what brings packets from the host's port, or from a service, to the
// workload: it says which counters grow, and what they prove.
type carrier interface {
	// bypasses reports whether the client's packets bypass the path's links.
	bypasses(c result.Client) bool
	count(ctx context.Context, r *Rig, n *Counters) error
	// proof returns a proof that is stronger than that of the links; nil if there
	// is none.
	proof(w Window) *result.Proof
	// forget removes the flows of earlier runs.
	forget(w *topology.World) error
	// listenPort is the port that the generator's server binds.
	listenPort() uint16
	// cgroup is the reason why the carrier needs cgroups, empty if it does not.
	cgroup() string
}

// carrierOf returns the carrier of the path's publish mode or data plane. The
// carrier of most is the kernel's stack.
func carrierOf(p suite.Path) carrier {
	if mode, ok := paths.Mode(p.Via); ok {
		return carriers[mode.Carrier()]
	}
	if p.Plane.Traits().AtLinks {
		return ebpf{}
	}
	return stack{}
}

// carriers are those of publish modes.
var carriers = map[model.Carrier]carrier{
	model.CarrierStack:     stack{},
	model.CarrierPrograms:  ebpf{},
	model.CarrierHooks:     hooks{},
	model.CarrierUserSpace: userSpace{},
}

// stack is the kernel's network stack: all packets pass the links.
type stack struct{}

func (stack) bypasses(result.Client) bool { return false }

func (stack) count(_ context.Context, r *Rig, n *Counters) (err error) {
	n.Flows, err = r.World.Tracked()
	return err
}

func (stack) proof(Window) *result.Proof { return nil }

func (stack) forget(w *topology.World) error { return w.FlushTracked() }

func (stack) listenPort() uint16 { return LoadPort }

func (stack) cgroup() string { return "" }

// ebpf are Fairlead's eBPF programs. They redirect packets past the links. A
// local client's socket is redirected when it connects, so its packets pass the
// links like others.
type ebpf struct{ stack }

func (ebpf) bypasses(c result.Client) bool { return c != result.Local }

func (ebpf) count(_ context.Context, r *Rig, n *Counters) (err error) {
	if n.translated, err = r.World.EBPFBytes(); err == nil && r.Crowd != nil {
		n.Flows, err = r.World.EBPFFlows()
	}
	return err
}

func (c ebpf) proof(w Window) *result.Proof {
	if !c.bypasses(w.Client) {
		return nil
	}
	translated := w.After.translated - w.Before.translated
	return &result.Proof{Counter: "bytes translated by eBPF", Want: w.Received, Got: translated,
		Absent: "bytes through the proxy", AbsentGot: w.proxied(), OK: translated >= w.Received && w.proxied() == 0}
}

func (ebpf) forget(w *topology.World) error { return w.FlushEBPFFlows() }

// hooks are the eBPF hooks that give a workload on the host another port than the
// one that it asked for.
type hooks struct{ stack }

func (hooks) count(_ context.Context, r *Rig, n *Counters) (err error) {
	count := func(port uint16) uint64 {
		listens, e := r.World.Listens(netip.AddrPortFrom(r.Addresses().Unspecified, port))
		err = errors.Join(err, e)
		if listens {
			return 1
		}
		return 0
	}
	n.granted, n.requested = count(LoadPort), count(hookPort)
	return err
}

func (hooks) proof(w Window) *result.Proof {
	return &result.Proof{Counter: "listeners on the granted port", Want: 1, Got: w.After.granted,
		Absent: "listeners on the workload's own port", AbsentGot: w.After.requested,
		OK: w.After.granted == 1 && w.After.requested == 0}
}

// hookPort differs from the published port, so a client that bypassed the mapping
// would be refused. The tools use the same port on both sides.
const hookPort = LoadPort + 1000

func (hooks) listenPort() uint16 { return hookPort }

func (hooks) cgroup() string { return "a workload is identified by its cgroup" }

// userSpace is Fairlead's user-space proxy.
type userSpace struct{ stack }

func (userSpace) proof(w Window) *result.Proof {
	return &result.Proof{Counter: "bytes through the proxy", Want: w.Received, Got: w.proxied(),
		OK: w.proxied() >= w.Received}
}
