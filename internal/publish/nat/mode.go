// Package nat publishes a port with destination NAT in nftables. conntrack
// translates the sandbox's answers.
//
// Theory of operation. The first packet of a flow to a local address is looked up
// in Fairlead's maps, and its destination is rewritten to the endpoint. conntrack
// does the same for the rest of the flow, and the reverse for the answers, so no
// lookup is made for later packets. The host forwards the packets, so forwarding
// is turned on for each family that is translated.
//
//	client ── uplink ── prerouting: DNAT ── routing ── endpoint
//	host process ── output: DNAT ── routing ── endpoint
//
// A range of ports with the same numbers on both sides is one element of an
// interval map, whatever its size. A range with different numbers needs one
// element per port, in the same transaction: with a target range, conntrack would
// pick any free port of it instead of the one at the same offset.
//
// 127.0.0.1 needs route_localnet on the link to the endpoint. The guard chain
// drops packets for 127.0.0.0/8 there, except the host's own. Answers come back
// because such flows are masqueraded. Netfilter can translate ::1 to no other
// host, and no address family to the other: there the user-space proxy serves
// clients. Only neighbours whose answers would bypass the host are masqueraded. A
// socket reserves every translated port, so that no other program listens there
// without effect: the proxy's listener if there is one, or else a socket that is
// bound and never read. If another program flushes Fairlead's rules, the proxy's
// listener serves clients until the rules are repaired.
//
// Kernel: nftables with inet NAT (5.2), concatenated intervals (5.6), fib and
// masquerade expressions, conntrack.
package nat

import (
	"errors"
	"net/netip"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/publish"
)

// Mode implements publish.Mode.
type Mode struct{}

// Name implements publish.Mode.
func (Mode) Name() model.Via { return model.ViaNAT }

// Carrier implements publish.Mode.
func (Mode) Carrier() model.Carrier { return model.CarrierStack }

// Needs implements publish.Mode.
func (Mode) Needs() []plan.Feature { return []plan.Feature{plan.FeatureNAT} }

// Validate implements publish.Mode.
func (Mode) Validate(p model.Publish) error {
	if p.ProxyProtocol != 0 {
		return errors.New("nat keeps the client's address and sends no PROXY header: leave it out, or publish via proxy")
	}
	if p.Reset {
		return errors.New("nat cannot reset connections, conntrack handles them: leave reset out, or publish via ebpf")
	}
	return nil
}

// Reaches implements publish.Mode.
func (Mode) Reaches(a plan.Attachment) error { return publish.Sandboxed(a) }

// Shared implements publish.Mode. It returns nil: each publish plans all that it
// needs.
func (Mode) Shared([]plan.Attachment) plan.Plan { return nil }

// Publish implements publish.Mode.
func (Mode) Publish(p model.Publish, a plan.Attachment) plan.Plan {
	all := plan.Plan{plan.Table{}}
	translated := 0
	for _, host := range publish.Hosts(p) {
		target, ok := a.Address(host.Is4())
		if !ok || host == netip.IPv6Loopback() {
			continue
		}
		translated++
		all = append(all, plan.IPForwarding(host.Is4()))
		all = append(all, mappings(p, host, target)...)
		all = append(all, returns(a, target)...)
		if host.Is4() && (host.IsUnspecified() || host.IsLoopback()) {
			all = append(all, plan.Sysctl{Name: plan.LinkSetting("ipv4", a.Link, "route_localnet"), Value: "1"})
		}
	}
	return append(all, socket(p, a, translated))
}

// socket reserves the host ports. If netfilter cannot translate all clients, it
// returns the proxy's listener, which serves the others.
func socket(p model.Publish, a plan.Attachment, translated int) plan.Object {
	loopback6 := !p.HostAddr.IsValid() || p.HostAddr == netip.IPv6Unspecified()
	if loopback6 || translated == 0 {
		return publish.Listener(p, a)
	}
	return plan.Reservation{Proto: p.Proto, Host: p.HostAddr, Ports: p.HostPorts}
}

// mappings returns the map elements that translate the ports to the target.
func mappings(p model.Publish, host, target netip.Addr) plan.Plan {
	m := plan.NFTMapping{Host: host, Proto: p.Proto, Ports: p.HostPorts, To: target}
	if p.HostPorts == p.Ports && p.Ports.Len() > 1 {
		return plan.Plan{m}
	}
	all := make(plan.Plan, 0, p.Ports.Len())
	for i := range p.Ports.Len() {
		m.Ports = model.Port(p.HostPorts.First + uint16(i))
		m.ToPort = p.Ports.First + uint16(i)
		all = append(all, m)
	}
	return all
}

// returns plans to masquerade the clients whose answers would bypass the host.
func returns(a plan.Attachment, target netip.Addr) plan.Plan {
	var all plan.Plan
	for _, by := range a.Bypass {
		if by.To.Addr().Is4() == target.Is4() {
			all = append(all, plan.Member{Set: plan.SetHairpin, Src: by.From, Dst: by.To})
		}
	}
	return all
}
