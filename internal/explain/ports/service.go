package ports

import (
	"net/netip"
	"slices"

	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
)

// ServiceMode returns the mode of the virtual services of a data plane.
func ServiceMode(p model.Plane) Mode { return Mode(p) + " service" }

// Service is a virtual service that answers at a port.
type Service struct {
	// Name is empty for an IPVS service that Fairlead's daemon does not know.
	Name      string          `json:"name,omitempty"`
	Plane     model.Plane     `json:"plane"`
	Scheduler model.Scheduler `json:"scheduler"`
	// Reals are the real servers that accept new flows. Port 0 means the port that
	// the client dialled.
	Reals []netip.AddrPort `json:"reals"`
}

func (s *Service) equal(o *Service) bool {
	return s == o || s != nil && o != nil && s.Name == o.Name && s.Plane == o.Plane && s.Scheduler == o.Scheduler &&
		slices.Equal(s.Reals, o.Reals)
}

// services adds a port for each frontend of the virtual services. IPVS has no
// names, so names maps the daemon's frontends to them.
func (b *builder) services(names map[model.Frontend]string) {
	for _, h := range b.Services {
		s := &Service{Name: h.Service, Plane: h.Plane, Scheduler: h.Scheduler, Reals: []netip.AddrPort{}}
		for _, r := range h.Backends {
			if !r.Draining && r.Weight > 0 {
				s.Reals = append(s.Reals, r.At)
			}
		}
		for _, at := range h.Frontends {
			of := *s
			if of.Name == "" {
				of.Name = names[model.Frontend{Proto: h.Proto, At: at}]
			}
			b.ports = append(b.ports, Port{Proto: h.Proto, Addresses: []netip.Addr{at.Addr()},
				Ports: model.Port(at.Port()),
				Modes: []Mode{ServiceMode(h.Plane)}, Service: &of})
		}
	}
}

// reachService evaluates the rules for packets to a service. A service without
// a real server is not reachable.
func (b *builder) reachService(p Port) Reach {
	var r Reach
	if len(p.Service.Reals) == 0 {
		return r
	}
	at := p.Addresses[0]
	uplink, address := b.uplink(at.Is4())
	r.Host = b.sure(rules.Yes, p, fromHost, at)
	for _, l := range b.Links {
		gateway, ok := addressOn(l, at.Is4())
		// Only the links of Fairlead's sandboxes have programs.
		if !ok || l.Kind != "bridge" || l.Name == uplink || p.Service.Plane.Traits().AtLinks && l.Owner == "" {
			continue
		}
		client := b.neighbour(gateway)
		came, _ := b.arrivesAt(p, l.Name, client)
		r.Containers = max(r.Containers, b.sureOfAll(came, p, client, at))
	}
	if uplink != "" && address.IsValid() {
		var by rules.Verdict
		r.LAN, by = b.arrivesAt(p, uplink, netip.Addr{})
		r.Firewall = b.firewall(p, uplink, at, r.LAN)
		r.LAN = b.sure(r.LAN, p, b.client(uplink, address), at)
		if by.By.Rule.Action != rules.None {
			r.Decided = by.By.Table + " " + by.By.Chain + ": " + by.By.Rule.String()
		}
	}
	return r
}

// arrivesAt evaluates the rules for a packet that arrives on a link, for each
// real server, and returns the best result with the verdict that decided.
func (b *builder) arrivesAt(p Port, link string, from netip.Addr) (best rules.Answer, by rules.Verdict) {
	packet := b.packet(p, p.Addresses[0])
	packet.In, packet.From = link, netip.AddrPortFrom(from, 0)
	switch t := p.Service.Plane.Traits(); {
	case t.AtLinks: // the programs run before all rules
		return rules.Yes, rules.Verdict{}
	case t.AtInput:
		f := b.filter("input", packet)
		return through(f), f
	}
	for _, to := range p.Service.Reals {
		translated := packet
		translated.To = model.RealServer{Address: to.Addr(), Port: to.Port()}.At(p.Ports.First)
		translated.Translated, translated.Local, translated.Out = true, b.local(to.Addr()), b.LinkTo(to.Addr())
		hook := "forward"
		if translated.Local {
			hook, translated.Out = "input", ""
		} else if !b.forwards(translated) {
			continue
		}
		f := b.filter(hook, translated)
		if came := through(f); came > best || by.Action == rules.None {
			best, by = max(best, came), f
		}
	}
	return best, by
}
