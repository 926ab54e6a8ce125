// Package ipvs balances virtual services with the kernel's IP Virtual Server.
//
// Theory of operation. Each frontend is one virtual service of IPVS, with every
// real server as a destination. IPVS takes a packet just before it is delivered
// on the host. So the virtual address must be local to the host: it is on a link,
// or Fairlead adds a local route for it.
//
//	client ── routing: local ── INPUT ── IPVS ── OUTPUT ── POSTROUTING ── real server
//	client ── POSTROUTING ── IPVS ── FORWARD ◄──────────────── answer (nat)
//	client ◄────────────────────────────────────────────────── answer (direct, tunnel)
//
// With nat, answers must come back through the host. Answers of Fairlead's
// sandboxes do, except those to neighbours on their own segment. Answers of
// servers on other machines do not, unless the host is their router. Where
// answers would bypass the host, clients are masqueraded: the real server sees the
// host's address. The rule that masquerades recognizes the flows of IPVS by a
// conntrack label, which a flow gets when it is opened (plan.IPVSTable). For that
// IPVS keeps the conntrack entries correct (conntrack=1), so stateful rules of
// other programs recognize the answers, too.
//
// A real server may be the host itself, which IPVS calls LocalNode: its packets
// continue from INPUT to the local process, rewritten with nat, and its answers are
// recognized at OUTPUT.
//
// A real server that drains, or has the weight 0, stays in the kernel with the
// weight 0. Its flows continue. New flows go to other servers, also those of
// clients that persistence has bound to it (expire_quiescent_template). A real
// server that is down is removed, and IPVS forgets its flows (expire_nodest_conn):
// the next packet of such a flow belongs to no connection, and the host answers
// with a reset. The engine, which has read the flows before, causes such a packet
// at once. A datagram goes to another server.
//
// Hashing schedulers choose another server if the first has the weight 0
// (sh-fallback, mh-fallback). Maglev hashing includes the client's port
// (mh-port), as in the other data planes. The kernel fills its Maglev table in the
// order in which destinations were added. For a new service that is the canonical
// order. A server that is added later is last, so two hosts have the same table
// only if both got the same servers at once.
//
// Kernel: ip_vs with the scheduler's module, Linux 5.9. Before that, a connection
// from a client's port that is used again could be sent to a removed server or be
// delayed (conn_reuse_mode), and flows of a removed server were kept. nat needs
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
func (Plane) Validate(v model.VirtualService, _ balance.Sandboxes, _ plan.Facts) error {
	errs := []error{balance.Families(v)}
	if v.Check.Passive {
		errs = append(errs,
			errors.New("ipvs does not report connections that fail: leave passive checks out, or use plane ebpf"))
	}
	if balance.Forward(v) == model.ForwardNAT {
		return errors.Join(errs...)
	}
	for _, r := range v.Reals {
		if r.Endpoint != "" || !r.Select.IsZero() {
			errs = append(errs,
				fmt.Errorf("real server %s is in a sandbox of this host, which would drop its answers: they come from the virtual address, which IPVS wants to be the host's own: forward by nat, or use plane ebpf", r))
			break
		}
	}
	return errors.Join(errs...)
}

// Shared implements balance.Plane. It plans the sysctls that decide what IPVS does
// with flows of removed and draining real servers.
func (Plane) Shared([]plan.Attachment) plan.Plan {
	return plan.Plan{
		plan.Sysctl{Name: "net.ipv4.vs.expire_nodest_conn", Value: "1"},
		plan.Sysctl{Name: "net.ipv4.vs.expire_quiescent_template", Value: "1"},
	}
}

// Service implements balance.Plane.
func (Plane) Service(v model.VirtualService, in balance.Sandboxes) plan.Plan {
	backends := balance.Backends(v, in)
	var all plan.Plan
	if balance.Forward(v) == model.ForwardNAT {
		all = returns(v, in, backends)
	}
	for _, a := range v.Addresses {
		if v.Link() == "" {
			all = append(all, plan.LocalRoute{Addr: a})
		}
	}
	for _, f := range v.Frontends() {
		all = append(all, plan.IPVSService{Proto: f.Proto, At: f.At, Scheduler: balance.Scheduler(v),
			Forward: balance.Forward(v), Tunnel: v.Tunnel,
			Persistence: v.Persistence, Reals: reals(backends, f.At.Port())})
	}
	return all
}

// reals returns the backends as destinations of IPVS for one port of the service.
func reals(backends []plan.Backend, port uint16) []plan.Backend {
	all := make([]plan.Backend, len(backends))
	for i, b := range backends {
		to := model.RealServer{Address: b.At.Addr(), Port: b.At.Port()}
		all[i] = plan.Backend{At: to.At(port), Weight: b.Weight}
		if b.Draining {
			all[i].Weight = 0
		}
	}
	return all
}

// returns plans the objects that make answers come back through the host.
func returns(v model.VirtualService, in balance.Sandboxes, backends []plan.Backend) plan.Plan {
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
	for i, r := range v.Reals {
		at, _ := in.Of(i)
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
