package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/bpf"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// maxPolicies is how many selectors of IPsec policies the programs store, as in
// bpf/include/ipsec.h.
const maxPolicies = len(bpf.FairleadPolicies{}.All)

// SetPolicies writes the selectors of the host's IPsec policies for the programs, and
// ends the flows that they cover: the programs leave such packets to the kernel. If there
// are more than maxPolicies, the programs leave all packets of clients behind uplinks to
// the kernel.
func (s Sources) SetPolicies(all []plan.IPsecPolicy) error {
	if len(all) > maxPolicies {
		all = []plan.IPsecPolicy{{Local: everyV4, Remote: everyV4}, {Local: everyV6, Remote: everyV6}}
	}
	m := s.maps[bpf.FairleadMapFlPolicies]
	var have bpf.FairleadPolicies
	if err := m.Lookup(uint32(0), &have); err != nil {
		return fmt.Errorf("read the IPsec policies of the programs: %w", err)
	}
	want := bpf.FairleadPolicies{Count: uint32(len(all))}
	for i, policy := range all {
		want.All[i] = policyOf(policy)
	}
	if want == have {
		return nil
	}
	if err := m.Put(uint32(0), want); err != nil {
		return fmt.Errorf("write the IPsec policies of the programs: %w", err)
	}
	return FlowMaps(s.maps).endProtected(want.All[:want.Count])
}

// everyV4 and everyV6 have all addresses of a family.
var (
	everyV4 = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	everyV6 = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
)

// allPorts is the mask of a port that is compared.
const allPorts = 0xffff

// policyOf returns a selector in the programs' form.
func policyOf(p plan.IPsecPolicy) bpf.FairleadPolicy {
	out := bpf.FairleadPolicy{Local: Address(p.Local.Addr()), LocalMask: maskOf(p.Local),
		Remote: Address(p.Remote.Addr()), RemoteMask: maskOf(p.Remote)}
	if p.LocalPort != 0 {
		out.LocalPort, out.LocalPortMask = swap(p.LocalPort), allPorts
	}
	if p.RemotePort != 0 {
		out.RemotePort, out.RemotePortMask = swap(p.RemotePort), allPorts
	}
	for udp, proto := range map[bool]uint8{false: unix.IPPROTO_TCP, true: unix.IPPROTO_UDP} {
		if p.Proto == 0 || p.Proto == proto {
			out.Classes |= 1 << ClassOf(p.Local.Addr().Is4(), udp)
		}
	}
	return out
}

// maskOf returns the mask of a prefix. The programs store IPv4 addresses IPv4-mapped.
func maskOf(p netip.Prefix) bpf.FairleadAddress {
	ones := p.Bits()
	if p.Addr().Is4() {
		ones += 96
	}
	var mask [16]byte
	for bit := range ones {
		mask[bit/8] |= 0x80 >> (bit % 8)
	}
	return Address(netip.AddrFrom16(mask))
}

// endProtected deletes the flows that one of the policies covers.
func (m FlowMaps) endProtected(policies []bpf.FairleadPolicy) error {
	var ended []Flow
	var failed error
	err := m.eachEntry(func(udp, stale bool, k bpf.FairleadFlowKey, f bpf.FairleadFlow) {
		var r bpf.FairleadReal // of a port mapping: none
		if slot := realOf(f.Slot); slot != 0 {
			failed = errors.Join(failed, m[bpf.FairleadMapFlReals].Lookup(slot, &r))
		}
		if slices.ContainsFunc(policies, func(p bpf.FairleadPolicy) bool {
			return covers(&p, k.Class, &f) || coversLeg(&p, &r, &k, &f)
		}) {
			ended = append(ended, flowOf(udp, stale, k, f))
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return m.Forget(ended)
}

// covers reports whether the policy covers the packets of a flow's client. Policies do
// not apply to sandboxes.
func covers(p *bpf.FairleadPolicy, class uint32, f *bpf.FairleadFlow) bool {
	return f.Flags&flowPeer == 0 && has(f.Host, p.Local, p.LocalMask) && has(f.Client, p.Remote, p.RemoteMask) &&
		p.Classes>>class&1 != 0 &&
		(f.HostPort^p.LocalPort)&p.LocalPortMask == 0 && (f.ClientPort^p.RemotePort)&p.RemotePortMask == 0
}

// coversLeg reports whether the policy may cover the packets of a flow to its real server
// on another host (is_protected_leg in bpf/include/balance.h).
func coversLeg(p *bpf.FairleadPolicy, r *bpf.FairleadReal, k *bpf.FairleadFlowKey, f *bpf.FairleadFlow) bool {
	local := k.Client
	if r.Flags&RealTunnel != 0 {
		local = r.Seen
	} else if k.Endpoint == f.Host {
		return false // direct forwarding
	}
	return r.Flags&RealRemote != 0 && has(local, p.Local, p.LocalMask) && has(r.To, p.Remote, p.RemoteMask)
}

// has reports whether an address has the prefix.
func has(a, prefix, mask bpf.FairleadAddress) bool {
	for i := range a.W {
		if (a.W[i]^prefix.W[i])&mask.W[i] != 0 {
			return false
		}
	}
	return true
}
