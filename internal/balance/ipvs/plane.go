// Package ipvs balances by the kernel's IP Virtual Server.
//
// Theory of operation. Each frontend is one virtual service of IPVS, with every
// real server as its destination. IPVS takes a packet when it is about to be
// delivered on the host, so the virtual address must be the host's own: it is
// on a link, or a local route of ours says so.
//
//	client ── routing: local ── INPUT ── IPVS ── OUTPUT ── POSTROUTING ── real server
//	client ── POSTROUTING ── IPVS ── FORWARD ◄──────────────── answer (nat)
//	client ◄────────────────────────────────────────────────── answer (direct, tunnel)
//
// By nat, answers must come back through the host. Those of our sandboxes do,
// but to neighbours on their own segment; those of servers elsewhere do not,
// unless the host is their router. Where they would go astray, the real server
// sees the host: a rule of our own knows what IPVS leads by a label that the flow
// got when it was opened (plan.IPVSTable). For that IPVS keeps conntrack's entries right
// (conntrack=1), by which stateful rules of others know the answers, too.
//
// A real server may be the host itself, which IPVS calls LocalNode: its packets go
// up from INPUT, rewritten by nat, and its answers are found at OUTPUT.
//
// A real server that drains, or weighs nothing, is left in the kernel with the
// weight 0: its flows stay, new ones go elsewhere, and the clients that
// persistence has tied to it with them (expire_quiescent_template). One that is
// down is removed, and its flows are forgotten with it (expire_nodest_conn): what
// comes next of them is nobody's, and the host answers with a reset. The engine,
// which has read the flows before, sees to it that something comes at once. A
// datagram goes to another server.
//
// Hashing schedulers go on to another server where theirs weighs nothing
// (sh-fallback, mh-fallback). Maglev hashing has the client's port count
// (mh-port), as it does in the other planes. The kernel fills its Maglev table
// in the order in which the destinations came, which is the canonical one for a
// service that is new; a server that is added later takes its turn last, so two
// hosts have the same table only if both were given the same at once.
//
// Kernel: ip_vs with the scheduler's module, Linux 5.9: before that, a client's
// port that is used again could be led to a server that has gone, or made to
// wait (conn_reuse_mode), and flows of a removed server were kept. nat needs
// nftables, too.
package ipvs

import (
	"errors"
	"fmt"
	"net/netip"

	"fairlead/internal/balance"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Plane implements balance.Plane.
type Plane struct{}

// Name implements balance.Plane.
func (Plane) Name() model.Plane { return model.PlaneIPVS }

// Needs implements balance.Plane.
func (Plane) Needs(v model.VirtualService) []plan.Feature {
	if balance.Forward(v) == model.ForwardNAT {
		return []plan.Feature{plan.FeatureIPVS, plan.FeatureNAT}
	}
	return []plan.Feature{plan.FeatureIPVS}
}

// Validate implements balance.Plane.
func (Plane) Validate(v model.VirtualService, _ plan.Facts) error {
	errs := []error{balance.Families(v)}
	if v.Check.Passive {
		errs = append(errs, errors.New("ipvs tells nobody of connections that fail: leave passive checks out, or use plane ebpf"))
	}
	if balance.Forward(v) == model.ForwardNAT {
		return errors.Join(errs...)
	}
	for _, r := range v.Reals {
		if r.Endpoint != "" || !r.Select.IsZero() {
			errs = append(errs, fmt.Errorf("real server %s is in a sandbox of this host, which would drop its answers: they come from the virtual address, which IPVS wants to be the host's own: forward by nat, or use plane ebpf", r))
			break
		}
	}
	return errors.Join(errs...)
}

// Shared implements balance.Plane: what IPVS does with flows whose real server
// has gone, or is going.
func (Plane) Shared([]plan.Attachment) plan.Plan {
	return plan.Plan{
		plan.Sysctl{Name: "net.ipv4.vs.expire_nodest_conn", Value: "1"},
		plan.Sysctl{Name: "net.ipv4.vs.expire_quiescent_template", Value: "1"},
	}
}

// Service implements balance.Plane.
func (Plane) Service(v model.VirtualService, find balance.Sandboxes) plan.Plan {
	backends := balance.Backends(v, find)
	var all plan.Plan
	if balance.Forward(v) == model.ForwardNAT {
		all = returns(v, find, backends)
	}
	for _, a := range v.Addresses {
		if v.Link() == "" {
			all = append(all, plan.LocalRoute{Addr: a})
		}
	}
	for _, f := range v.Frontends() {
		all = append(all, plan.IPVSService{Proto: f.Proto, At: f.At, Scheduler: balance.Scheduler(v), Forward: balance.Forward(v), Tunnel: v.Tunnel,
			Persistence: v.Persistence, Reals: reals(backends, f.At.Port())})
	}
	return all
}

// reals returns the backends as IPVS has them, for clients of a port.
func reals(backends []plan.Backend, port uint16) plan.Backends {
	all := make([]plan.Backend, len(backends))
	for i, b := range backends {
		to := model.RealServer{Address: b.At.Addr(), Port: b.At.Port()}
		all[i] = plan.Backend{At: to.At(port), Weight: b.Weight}
		if b.Draining {
			all[i].Weight = 0
		}
	}
	return plan.PackBackends(all)
}

// returns is what brings answers back through the host.
func returns(v model.VirtualService, find balance.Sandboxes, backends []plan.Backend) plan.Plan {
	all := plan.Plan{plan.Sysctl{Name: "net.ipv4.vs.conntrack", Value: "1"}, plan.IPVSTable{}}
	for _, a := range v.Addresses {
		all = append(all, plan.IPForwarding(a.Is4()))
	}
	set := sees(backends)
	if set == plan.SetIPVSMixed {
		for _, b := range backends {
			if b.Masquerade {
				all = append(all, plan.IPVSMember{Set: plan.SetIPVSMasqueraded, At: netip.AddrPortFrom(b.At.Addr(), 0)})
			}
		}
	}
	for _, f := range v.Frontends() {
		all = append(all, plan.IPVSMember{Set: set, Proto: f.Proto, At: f.At})
	}
	if set == plan.SetIPVSHidden {
		return all
	}
	for _, r := range v.Reals {
		at, _ := find(r.Endpoint)
		for _, by := range at.Bypass {
			if by.To.Addr().Is4() == r.Address.Is4() {
				all = append(all, plan.IPVSMember{Set: plan.SetIPVSHairpin, Src: by.From, Dst: by.To})
			}
		}
	}
	return all
}

// sees returns the set of the frontends whose real servers are these.
func sees(backends []plan.Backend) string {
	hidden := 0
	for _, b := range backends {
		if b.Masquerade {
			hidden++
		}
	}
	switch {
	case hidden == 0:
		return plan.SetIPVSKept
	case hidden == len(backends):
		return plan.SetIPVSHidden
	}
	return plan.SetIPVSMixed
}
