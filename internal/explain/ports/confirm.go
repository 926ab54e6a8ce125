package ports

import (
	"net/netip"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/explain/facts"
	"fairlead/internal/explain/flow"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
)

// Ask explains a flow; see flow.Explain.
type Ask func(flow.Flow) (flow.Explanation, error)

// ListAsked is List, and asks for a flow from each place to each port: routes, links,
// programs, filters of frames and settings may lose packets that the rules accept.
func ListAsked(f facts.Facts, known []api.View, services []api.ServiceView, ask Ask) []Port {
	return list(f, known, services, ask)
}

// The ends of flows that begin on this host.
const (
	fromLoopback = "localhost"
	fromHost     = "host"
)

// sure returns what the rules and the flow from a place together say. The rules are for all
// clients of the place, the flow is for one of them. A refusal counts as reached, unless a
// socket of the host should have answered.
func (b *builder) sure(answer rules.Answer, p Port, from string, to netip.Addr) rules.Answer {
	sure, _ := b.follow(answer, p, from, to)
	return sure
}

// sureOfAll is sure for the containers of a bridge, of which one is the client. A route or a link that only this one
// lacks says nothing about the others.
func (b *builder) sureOfAll(answer rules.Answer, p Port, client, to netip.Addr) rules.Answer {
	sure, outcome := b.follow(answer, p, fromAddress(client), to)
	if outcome == flow.NoRoute {
		return min(answer, rules.Maybe)
	}
	return sure
}

// follow returns what the rules and the flow say, and where the flow ends; "" if it is not known.
func (b *builder) follow(answer rules.Answer, p Port, from string, to netip.Addr) (rules.Answer, flow.Outcome) {
	if b.ask == nil || from == "" {
		return answer, ""
	}
	e, err := b.ask(flow.Flow{From: from, To: to.String(), Port: p.Ports.First, Proto: p.Proto})
	if err != nil {
		return min(answer, rules.Maybe), ""
	}
	return judge(answer, p, e), e.Outcome
}

// judge returns what the rules and the flow say.
func judge(answer rules.Answer, p Port, e flow.Explanation) rules.Answer {
	switch {
	case e.Uncertain, e.Outcome == flow.Unknown, e.Outcome == flow.Leaves: // another machine may not answer
		if p.Service == nil {
			return min(answer, rules.Maybe)
		}
		return answer // which real server the service chooses is not certain
	case e.Outcome == flow.Dropped, e.Outcome == flow.NoRoute, e.Outcome == flow.Refused && p.ofHost():
		return rules.No
	case answer == rules.No:
		return rules.Maybe
	}
	return answer
}

// ofHost reports whether only a socket of the host serves the port.
func (p Port) ofHost() bool { return slices.Equal(p.Modes, []Mode{Host}) }

// client returns the address of a client that arrives on the uplink, for flows to the host's
// address there: the default gateway's, or another one of the address's subnet; "" if there
// is none.
func (b *builder) client(uplink string, of netip.Addr) string {
	for _, r := range b.Routes {
		if r.To.Bits() == 0 && r.Link == uplink && r.Via.IsValid() && r.Via.Is4() == of.Is4() &&
			!r.Via.IsLinkLocalUnicast() {
			return r.Via.String()
		}
	}
	return fromAddress(b.neighbour(of))
}

// fromAddress returns the beginning of a flow from an address; "" if it is invalid.
func fromAddress(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// neighbour returns an address that another machine in the subnet of one of the host's
// addresses may have; an invalid one if the subnet has no other.
func (b *builder) neighbour(of netip.Addr) netip.Addr {
	i := slices.IndexFunc(b.Links, func(l inspect.InsideLink) bool { return subnetOf(l, of).IsValid() })
	if i < 0 {
		return netip.Addr{}
	}
	subnet := subnetOf(b.Links[i], of)
	for a := subnet.Masked().Addr().Next(); subnet.Contains(a); a = a.Next() {
		last := !subnet.Contains(a.Next())
		if b.LinkWith(a) == "" && !(last && a.Is4() && subnet.Bits() < 31) { // the last one is for broadcasts
			return a
		}
	}
	return netip.Addr{}
}

// subnetOf returns the link's address with its prefix length; invalid if it does not have
// the address.
func subnetOf(l inspect.InsideLink, a netip.Addr) netip.Prefix {
	i := slices.IndexFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
	if i < 0 {
		return netip.Prefix{}
	}
	return l.Addresses[i]
}

// frontends returns the names of the daemon's services by their frontends.
func frontends(services []api.ServiceView) map[model.Frontend]string {
	names := map[model.Frontend]string{}
	for _, s := range services {
		for _, at := range s.Frontends() {
			names[at] = s.Name
		}
	}
	return names
}
