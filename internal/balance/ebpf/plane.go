// Package ebpf balances virtual services with Fairlead's eBPF programs. The
// packets bypass the host's bridge, netfilter and conntrack. The programs are in
// the folder bpf of the repository (bpf/include/balance.h, services.h). This
// package only plans them.
//
// Theory of operation. The programs first look up a packet for a virtual address
// and port among the open connections. A connection that has a real server keeps
// it, even if the table has changed since. For a new connection the scheduler
// chooses a real server. The packet is rewritten and redirected into the sandbox,
// or forwarded to a real server on another host. The answer is recognized where
// it comes in, at the sandbox's link or at an uplink, and gets the virtual address
// as its source again. For processes of the host the choice is made at connect and
// sendmsg. They then communicate with the real server directly, and none of their
// packets is changed.
//
//	client ── uplink ─[ choose ]─ sandbox's link ── real server
//	client ── uplink ─[ choose ]─ uplink ── real server on another host
//	host process ─[ choose at connect ]─ host's routing ── real server
//
// The virtual address need not be on any interface. Flows end with their real
// server: TCP connections are reset on both sides. If there is no real server to
// choose, clients are refused.
//
// With direct and tunnel forwarding the packets are not changed. A real server on
// another host gets them at its hardware address (direct), or encapsulated in
// packets to its own address (tunnel), in UDP if GUE is configured
// (bpf/include/tunnel.h). A sandbox gets them unchanged and not encapsulated.
//
// A real server may be the host itself. With nat the packet is rewritten and left
// to the kernel, and the answer is rewritten at the egress of its link
// (bpf/include/local_real.h). With direct and tunnel the kernel gets the packet
// unchanged.
//
// Packets that stay unchanged and go to another host can be forwarded by network
// drivers, without the kernel's stack (XDP, bpf/include/xdp.h).
//
// A packet that exceeds the MTU of the route to a real server on another host is
// not forwarded. Its sender gets an ICMP error with the MTU.
//
// Limits: a process of the host counts for lc and wlc until it closes its socket.
// It connects to the real server's own address, also with direct and tunnel
// forwarding. Sandboxes with a limited receive rate are refused. If a router
// between the host and a tunnel's real server has a link with a lower MTU than
// the host's route, packets above that MTU are lost, and the client gets no error.
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

// maxLoaded is the largest number of real servers whose load the programs compare
// for each new flow, as in bpf/include/services.h.
const maxLoaded = 256

// maxBuckets is the largest number of buckets that fit into one value of the
// programs' map.
const maxBuckets = 262139

// maxTurns limits the turns of weighted round robin.
const maxTurns = 16384

// Plane implements balance.Plane.
type Plane struct{}

// Name implements balance.Plane.
func (Plane) Name() model.Plane { return model.PlaneEBPF }

// Needs implements balance.Plane.
func (Plane) Needs(model.VirtualService) []plan.Feature {
	return []plan.Feature{plan.FeatureEBPF, plan.FeatureCgroupHooks, plan.FeatureServices}
}

// Validate implements balance.Plane.
func (Plane) Validate(v model.VirtualService, in balance.Sandboxes, _ plan.Facts) error {
	switch t := v.Scheduler.Traits(); {
	case t.OnlyIPVS:
		return fmt.Errorf("ebpf has no scheduler %s: use wlc, or the plane ipvs", v.Scheduler)
	case t.CountsFlows:
		if len(v.Reals) > maxLoaded {
			return fmt.Errorf("ebpf compares the load of at most %d real servers, and there are %d: use mh", maxLoaded,
				len(v.Reals))
		}
	}
	if v.Tunnel.Checksum != "" {
		return fmt.Errorf("ebpf adds no checksum to encapsulated packets, because the inner packets have their own: remove %s from the tunnel, or use the plane ipvs", v.Tunnel.Checksum)
	}
	for i, r := range v.Reals {
		at, _ := in.Of(i)
		if at.Shaped {
			return fmt.Errorf("ebpf bypasses the limit on what %s receives: use the plane nft, or remove the limit",
				r.Endpoint)
		}
		if at.Away && (v.Forward == "" || v.Forward == model.ForwardNAT) {
			return fmt.Errorf("the default route of %s is on another network, so its answers do not pass the eBPF program: use the plane nft",
				r.Endpoint)
		}
		if at.Internal {
			return fmt.Errorf("the network of %s is internal, and ebpf has no program there: use the plane nft",
				r.Endpoint)
		}
	}
	return balance.Families(v)
}

// Shared implements balance.Plane.
func (Plane) Shared(all []plan.Attachment) plan.Plan { return plan.AttachPrograms(all) }

// Service implements balance.Plane.
func (Plane) Service(v model.VirtualService, in balance.Sandboxes) plan.Plan {
	b := balance.Pack(v, in, balance.Sizes{Buckets: min(maglev.Size(len(v.Reals)), maxBuckets), Turns: maxTurns})
	backends := b.Backends
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
			// If the sandbox's link has no end on the host, the sandbox is on the LAN.
			backends[i].Masquerade = true
		}
		if backends[i].Link == "" {
			backends[i].Gateway = netip.Addr{}
		}
	}
	b.Backends = backends
	all := forwarding(backends)
	if b.Forward != model.ForwardNAT && slices.ContainsFunc(backends, isElsewhere) {
		all = append(all, plan.FastPath{})
	}
	if b.Forward == model.ForwardNAT && slices.ContainsFunc(backends, func(b plan.Backend) bool { return b.Local }) {
		all = append(all, plan.LocalRealEgress{})
	}
	return append(all, plan.EBPFService{Balanced: b})
}

// isElsewhere reports whether a real server is on another machine: neither the
// host itself nor in a sandbox of the host.
func isElsewhere(b plan.Backend) bool { return b.Link == "" && !b.Local }

// forwarding returns the sysctl without which bpf_fib_lookup returns no next hop
// for a real server on another machine (BPF_FIB_LKUP_RET_FWD_DISABLED).
func forwarding(backends []plan.Backend) plan.Plan {
	for _, b := range backends {
		if isElsewhere(b) {
			return plan.Plan{plan.IPForwarding(b.At.Addr().Is4())}
		}
	}
	return nil
}
