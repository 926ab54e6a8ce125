// Package nat publishes a port by destination NAT in nftables. It leaves the
// sandbox's answers to the host's conntrack.
//
// Theory of operation. The first packet of a flow to a local address is
// looked up in our maps and its destination rewritten to the endpoint;
// conntrack does the same for the rest of the flow and the reverse for the
// answers. Nothing of ours runs for each packet. The host forwards them, so
// each family that is led has forwarding turned on.
//
//	client ── uplink ── prerouting: DNAT ── routing ── endpoint
//	host process ── output: DNAT ── routing ── endpoint
//
// A range that keeps its port numbers is one element of an interval map,
// whatever its size. A range that shifts them is an element a port, in the
// same transaction: conntrack picks a free port from a range, which is not
// the offset that was asked for.
//
// 127.0.0.1 needs route_localnet on the link to the endpoint; the guard chain
// keeps everyone but the host itself out of 127.0.0.0/8 there, and answers
// come back because such flows are masqueraded. Netfilter cannot lead ::1
// anywhere else, nor one address family to the other: there the user-space
// proxy answers. Neighbours whose answers would pass the host by are
// masqueraded, nobody else. Every port led away is held by a socket, so that
// no other program listens there in vain: the proxy's listener where it has
// one, or else one that is bound and never read. Should someone flush our
// rules, that listener answers until they are healed.
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

// Mode implements publish.Way.
type Mode struct{}

// Name implements publish.Way.
func (Mode) Name() model.Via { return model.ViaNAT }

// Needs implements publish.Way.
func (Mode) Needs() []plan.Feature { return []plan.Feature{plan.FeatureNAT} }

// Validate implements publish.Way.
func (Mode) Validate(p model.Publish) error {
	if p.ProxyProtocol != 0 {
		return errors.New("nat keeps the client's address and sends no PROXY header: leave it out, or publish via proxy")
	}
	if p.Reset {
		return errors.New("nat leaves its connections to conntrack and resets none: leave reset out, or publish via ebpf")
	}
	return nil
}

// Reaches implements publish.Way.
func (Mode) Reaches(a plan.Attachment) error { return publish.Sandboxed(a) }

// Shared implements publish.Way: every publish brings what it needs.
func (Mode) Shared([]plan.Attachment) plan.Plan { return nil }

// Publish implements publish.Way.
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
			all = append(all, plan.Sysctl{Name: "net.ipv4.conf." + a.Link + ".route_localnet", Value: "1"})
		}
	}
	return append(all, socket(p, a, translated))
}

// socket holds the host ports against other programs. It also answers where
// netfilter cannot lead, unless it led everything.
func socket(p model.Publish, a plan.Attachment, translated int) plan.Object {
	loopback6 := !p.HostAddr.IsValid() || p.HostAddr == netip.IPv6Unspecified()
	if loopback6 || translated == 0 {
		return publish.Listener(p, a)
	}
	return plan.Reservation{Proto: p.Proto, Host: p.HostAddr, Ports: p.HostPorts}
}

// mappings returns the elements that lead the ports to the target.
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

// returns masquerades the clients whose answers would pass the host by.
func returns(a plan.Attachment, target netip.Addr) plan.Plan {
	var all plan.Plan
	for _, by := range a.Bypass {
		if by.To.Addr().Is4() == target.Is4() {
			all = append(all, plan.Member{Set: plan.SetHairpin, Src: by.From, Dst: by.To})
		}
	}
	return all
}
