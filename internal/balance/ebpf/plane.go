// Package ebpf balances virtual services by eBPF programs of our own, past the
// host's bridge, netfilter and conntrack. The programs are in the folder bpf at
// the top (bpf/include/balance.h, services.h); here they are only planned.
//
// Theory of operation. A packet for a virtual address and port is looked for
// among the connections first: whoever has a real server keeps it, whatever has
// become of the table since. For a new one the scheduler chooses. The packet is
// rewritten and put into the sandbox, or sent on to a real server elsewhere; its
// answer is found where it comes in, at the sandbox's link or an uplink, and gets
// the virtual address back. Processes of the host choose at connect and sendmsg,
// and then speak to the real server itself: no packet of theirs is touched.
//
//	client ── uplink ─[ choose ]─ sandbox's link ── real server
//	client ── uplink ─[ choose ]─ uplink ── real server elsewhere
//	host process ─[ choose at connect ]─ host's routing ── real server
//
// The virtual address need not be on any interface. Flows end with their real
// server: over TCP by a reset to both sides. Without anybody to choose, clients
// are refused.
//
// By direct and tunnel packets stay as they are. A real server elsewhere gets
// them by its hardware address, or wrapped in others for its own address, in UDP where GUE is asked for
// (bpf/include/tunnel.h); a sandbox gets them as they are.
//
// A real server may be the host itself. By nat the packet is rewritten and left to
// the kernel, and the answer is rewritten at the egress of the link by which it
// leaves (bpf/include/local_real.h). By direct and tunnel the kernel gets it as it is.
//
// What stays as it is and goes elsewhere, drivers may send on without the kernel
// (XDP, bpf/include/xdp.h).
//
// A packet that is too large for the way to a real server elsewhere is not sent
// on, and its sender is told how large it may be.
//
// Limits: a process of the host counts for lc and wlc until it closes its socket,
// and calls a real server of direct forwarding or by tunnel, too, at its own
// address. A sandbox whose receiving is bounded is none of this plane's. Where a
// router on a tunnel's way has a narrower link than the route says, what is too
// large for that is lost: nobody tells the client.
//
// Kernel: 5.14 with cgroup v2; TCX from 6.6 on, cls_bpf before.
package ebpf

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/balance"
	"fairlead/internal/balance/maglev"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// maxLoaded is how many real servers can be asked for their load for each new
// flow, as in bpf/include/services.h.
const maxLoaded = 256

// maxBuckets bounds a table to what one piece of the programs' memory holds.
const maxBuckets = 262139

// Plane implements balance.Plane.
type Plane struct{}

// Name implements balance.Plane.
func (Plane) Name() model.Plane { return model.PlaneEBPF }

// Needs implements balance.Plane.
func (Plane) Needs(model.VirtualService) []plan.Feature {
	return []plan.Feature{plan.FeatureEBPF, plan.FeatureCgroupHooks, plan.FeatureServices}
}

// Validate implements balance.Plane.
func (Plane) Validate(v model.VirtualService, f plan.Facts) error {
	switch balance.Scheduler(v) {
	case model.ShortestExpectedDelay, model.NeverQueue:
		return fmt.Errorf("ebpf has no scheduler %s: use wlc, or the plane ipvs", v.Scheduler)
	case model.LeastConnection, model.WeightedLeastConnection:
		if len(v.Reals) > maxLoaded {
			return fmt.Errorf("ebpf asks at most %d real servers for their load, and there are %d: use mh", maxLoaded, len(v.Reals))
		}
	}
	if v.Tunnel.Checksum != "" {
		return fmt.Errorf("ebpf adds no checksum to what it wraps (%s), since the packets within have theirs: leave it out, or use the plane ipvs", v.Tunnel.Checksum)
	}
	for _, r := range v.Reals {
		if f.Shaped[r.Endpoint] {
			return fmt.Errorf("the short-cut passes by the bound on what %s receives: use the plane nft, or lift the bound", r.Endpoint)
		}
		if f.Internal[r.Endpoint] {
			return fmt.Errorf("the network of %s is internal, and ebpf has no program there: use the plane nft", r.Endpoint)
		}
	}
	return balance.Families(v)
}

// Shared implements balance.Plane.
func (Plane) Shared(all []plan.Attachment) plan.Plan { return plan.AttachPrograms(all) }

// Service implements balance.Plane.
func (Plane) Service(v model.VirtualService, find balance.Sandboxes) plan.Plan {
	hashed := v
	if v.Scheduler == model.SourceHashing {
		hashed.Scheduler = model.MaglevHashing
	}
	b := balance.Pack(hashed, find, min(maglev.Size(len(v.Reals)), maxBuckets))
	b.Scheduler = balance.Scheduler(v)
	backends := b.Backends.List()
	here := map[netip.AddrPort]bool{}
	for _, r := range v.Reals {
		here[r.At(0)] = r.Local
	}
	for i := range backends {
		switch backends[i].Local = here[backends[i].At]; {
		case backends[i].Local:
			backends[i].Masquerade, backends[i].Tunnel = false, false
		case b.Forward != model.ForwardNAT:
			backends[i].Masquerade = false
		case backends[i].Link == "" && v.SourceNAT != model.SourceNATRouted:
			// A sandbox without an end of its link on the host is on the LAN.
			backends[i].Masquerade = true
		}
		if backends[i].Link == "" {
			backends[i].Gateway = netip.Addr{}
		}
	}
	b.Backends = plan.PackBackends(backends)
	all := forwarding(backends)
	if b.Forward != model.ForwardNAT && slices.ContainsFunc(backends, isElsewhere) {
		all = append(all, plan.FastPath{})
	}
	if b.Forward == model.ForwardNAT && slices.ContainsFunc(backends, func(b plan.Backend) bool { return b.Local }) {
		all = append(all, plan.LocalRealEgress{})
	}
	return append(all, plan.EBPFService{Balanced: b})
}

// isElsewhere reports whether a real server is neither here nor in a sandbox.
func isElsewhere(b plan.Backend) bool { return b.Link == "" && !b.Local }

// forwarding is what the kernel wants before it tells programs the way to a real
// server elsewhere (bpf_fib_lookup: BPF_FIB_LKUP_RET_FWD_DISABLED).
func forwarding(backends []plan.Backend) plan.Plan {
	for _, b := range backends {
		if isElsewhere(b) {
			return plan.Plan{plan.IPForwarding(b.At.Addr().Is4())}
		}
	}
	return nil
}
