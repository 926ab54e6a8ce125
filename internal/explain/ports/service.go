package ports

import (
	"net/netip"
	"slices"

	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
)

// The ways to a virtual service, by what balances it.
const (
	ServiceEBPF Mode = Mode(model.PlaneEBPF) + " service"
	ServiceNFT  Mode = Mode(model.PlaneNFT) + " service"
	ServiceIPVS Mode = Mode(model.PlaneIPVS) + " service"
)

// Service is a virtual service that answers at a port.
type Service struct {
	// Name is empty for one of IPVS that nobody has told us the name of.
	Name      string          `json:"name,omitempty"`
	Plane     model.Plane     `json:"plane"`
	Scheduler model.Scheduler `json:"scheduler"`
	// Reals are the real servers that take new flows; port 0 is the one that the
	// client has dialled.
	Reals []netip.AddrPort `json:"reals"`
}

func (s *Service) equal(o *Service) bool {
	return s == o || s != nil && o != nil && s.Name == o.Name && s.Plane == o.Plane && s.Scheduler == o.Scheduler && slices.Equal(s.Reals, o.Reals)
}

// services makes ports of the frontends of virtual services. IPVS has no names:
// the daemon's frontends tell.
func (b *builder) services(names map[model.Frontend]string) {
	for _, h := range b.Services {
		s := &Service{Name: h.Service, Plane: h.Plane, Scheduler: h.Scheduler, Reals: []netip.AddrPort{}}
		for _, r := range h.Backends.List() {
			if !r.Draining && r.Weight > 0 {
				s.Reals = append(s.Reals, r.At)
			}
		}
		for _, at := range h.Frontends.List() {
			of := *s
			if of.Name == "" {
				of.Name = names[model.Frontend{Proto: h.Proto, At: at}]
			}
			b.ports = append(b.ports, Port{Proto: h.Proto, Addresses: []netip.Addr{at.Addr()}, Ports: model.Port(at.Port()), Modes: []Mode{Mode(h.Plane) + " service"}, Service: &of})
		}
	}
}

// reachService follows packets for a service: nobody reaches one that has no
// real server.
func (b *builder) reachService(p Port) Reach {
	var r Reach
	if len(p.Service.Reals) == 0 {
		return r
	}
	at := p.Addresses[0]
	uplink, address := b.uplink(at.Is4())
	r.Host = rules.Yes
	for _, l := range b.Links {
		gateway, ok := addressOn(l, at.Is4())
		// Programs are at the sandboxes of ours alone.
		if !ok || l.Kind != "bridge" || l.Name == uplink || p.Service.Plane == model.PlaneEBPF && l.Owner == "" {
			continue
		}
		came, _ := b.arrivesAt(p, l.Name, gateway.Next())
		r.Containers = max(r.Containers, came)
	}
	if uplink != "" && address.IsValid() {
		var by rules.Verdict
		r.LAN, by = b.arrivesAt(p, uplink, netip.Addr{})
		r.Firewall = b.firewall(p, uplink, at, r.LAN)
		if by.By.Rule.Action != rules.None {
			r.Decided = by.By.Table + " " + by.By.Chain + ": " + by.By.Rule.String()
		}
	}
	return r
}

// arrivesAt follows a packet that comes by a link to the real server that it
// reaches best.
func (b *builder) arrivesAt(p Port, link string, from netip.Addr) (best rules.Answer, by rules.Verdict) {
	packet := b.packet(p, p.Addresses[0])
	packet.In, packet.From = link, netip.AddrPortFrom(from, 0)
	switch p.Service.Plane {
	case model.PlaneEBPF: // before all rules
		return rules.Yes, rules.Verdict{}
	case model.PlaneIPVS: // where it would be delivered
		f := b.filter("input", packet)
		return through(f), f
	}
	for _, to := range p.Service.Reals {
		translated := packet
		translated.To = model.RealServer{Address: to.Addr(), Port: to.Port()}.At(p.Ports.First)
		translated.Translated, translated.Local, translated.Out = true, b.local(to.Addr()), b.holder(to.Addr())
		hook := "forward"
		if translated.Local {
			hook, translated.Out = "input", ""
		}
		f := b.filter(hook, translated)
		if came := through(f); came > best || by.Action == rules.None {
			best, by = max(best, came), f
		}
	}
	return best, by
}
