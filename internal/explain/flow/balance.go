package flow

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// balancer follows packets through the virtual services of the host.
type balancer struct {
	*report
	services Services
	proto    model.Proto
	// prefer is the real server that is chosen if the service may choose it.
	prefer netip.AddrPort
}

// service returns the virtual service of a data plane at an address and port.
func (b *balancer) service(plane model.Plane, at netip.AddrPort) (Service, bool) {
	all, err := b.services.Services()
	if b.fail(err) {
		return Service{}, false
	}
	i := slices.IndexFunc(all, func(s Service) bool { return s.Plane == plane && s.answers(b.proto, at) })
	if i < 0 {
		return Service{}, false
	}
	return all[i], true
}

// noReal ends the walk at a service that has no real server for new flows.
func (b *balancer) noReal(h Hop, c choice, p packet) {
	h.Balance = c.balance
	what := h.Why
	h.What += fmt.Sprintf("%s has no real server that accepts new flows, and no sorry server: %s", c.Service, what)
	h.Why = ""
	b.hop(p, h)
	b.end(Refused, "%s has no real server that accepts new flows: %s", c.Service, what)
}

// refusal returns what a client of a service without a real server gets.
func (b *balancer) refusal() string {
	if b.proto == model.UDP {
		return "the client gets ICMP port unreachable"
	}
	return "the client's connection is reset"
}

// sees returns which address the real server sees as its client's.
func sees(c choice, src netip.Addr) string {
	switch {
	case c.Masquerade:
		return fmt.Sprintf("the real server sees %s, because its answers must return through the host", src)
	case src.IsValid():
		return fmt.Sprintf("the real server sees the client's address, %s", src)
	}
	return ""
}

// serves follows a packet that Fairlead's program at a link sends to a real
// server. It reports whether there is such a service.
func (k *walker) serves(link string, prog datapath.Program, p packet) bool {
	s, ok := k.balancer.service(model.PlaneEBPF, p.dst)
	if !ok {
		return false
	}
	k.unseen(link)
	h := Hop{Kind: EBPF, Where: k.name(""), Link: link, By: plan.EBPFService{Balanced: s.Balanced}.Add()[0],
		Program: programText(prog, "tcx ingress of "+link), What: "eBPF: "}
	c, found := s.choose(p.src, p.dst, k.balancer.prefer)
	if !found {
		h.Why = k.balancer.refusal()
		k.balancer.noReal(h, c, p)
		return true
	}
	h.Balance, h.Clue = c.balance, Clue{Translated: true, Mapping: datapath.ServiceMapping(s.Service, c.At)}
	was := p.dst
	if c.Forward == model.ForwardNAT {
		p.dst = c.at
	}
	switch {
	case c.Masquerade && c.Link == "":
		p.src = netip.AddrPortFrom(k.router.hostTowards(c.at.Addr()), 0)
	case c.Masquerade, p.src.Addr() == p.dst.Addr():
		p.src = netip.AddrPortFrom(c.Gateway, 0)
	}
	h.What += fmt.Sprintf("%s sends it from %s to %s (%s)%s, bypassing netfilter and conntrack", s, was, c.at,
		c.among(), forwarded(c))
	h.Why = sees(c, p.src.Addr())
	k.hop(p, h)
	if c.Link != "" && c.Forward != model.ForwardTunnel {
		k.intoSandbox(link, was, c, p)
		return true
	}
	k.toServer("", link, was, c, p)
	return true
}

// forwarded returns how a packet is forwarded; "" for NAT.
func forwarded(c choice) string {
	switch c.Forward {
	case model.ForwardDirect:
		return ", at its hardware address: the packet itself is not changed"
	case model.ForwardTunnel:
		return fmt.Sprintf(", encapsulated in a packet to it (%s)", encapsulation(c.Service.Tunnel))
	}
	return ""
}

// encapsulation names the encapsulation of a tunnel.
func encapsulation(t model.Tunnel) string {
	if t.Type == model.TunnelGUE {
		return fmt.Sprintf("GUE, UDP port %d", t.Port)
	}
	return "IPIP"
}

// intoSandbox follows a packet from Fairlead's program directly into a sandbox.
func (k *walker) intoSandbox(link string, was netip.AddrPort, c choice, p packet) {
	port, ok := linkOf(k.world.Links, "", c.Link)
	if !ok {
		k.end(Unknown, "link %s, behind which %s was, no longer exists", c.Link, c.at)
		return
	}
	k.answer("", c.Link, fmt.Sprintf("eBPF: the program at %s sends the answer, from %s, out via %s", c.Link, was,
		link))
	end, ok := k.world.Links.Peer("", port)
	if !ok {
		k.end(Unknown, "it enters the namespace behind %s, which cannot be found", c.Link)
		return
	}
	k.come("", port, end, p)
}

// toServer follows a packet that a data plane sends to a real server along the
// routing table, without passing rules.
func (k *walker) toServer(netns, in string, was netip.AddrPort, c choice, p packet) {
	r, ok := k.router.route(netns, "", packet{dst: c.at})
	if !ok {
		return
	}
	k.balancer.answered(r.Link, was, c)
	if c.Forward == model.ForwardTunnel {
		k.hop(p, Hop{Kind: Link, Where: k.name(netns), Link: r.Link,
			What: fmt.Sprintf("leaves encapsulated in a packet to %s", c.at.Addr())})
		k.end(Leaves, "it leaves via %s, encapsulated in a packet to %s, which must have the virtual address", r.Link,
			c.at.Addr())
		return
	}
	k.router.routed(netns, in, "", r, packet{src: p.src, dst: c.at})
	l, ok := linkOf(k.world.Links, netns, r.Link)
	if !ok {
		k.end(Unknown, "link %s no longer exists", r.Link)
		return
	}
	next := r.Via
	if !next.IsValid() {
		next = c.at.Addr()
	}
	k.transmit(netns, l, next, p)
}

// answered records the path of the answer of a real server on another machine.
func (b *balancer) answered(link string, was netip.AddrPort, c choice) {
	switch {
	case c.Forward != model.ForwardNAT:
		b.answer("", "", fmt.Sprintf("the real server answers the client directly, from %s, not through this host",
			was))
	case c.Plane == model.PlaneEBPF:
		b.answer("", link,
			fmt.Sprintf("eBPF: the program at %s sets the answer's source to %s and sends it to the client", link, was))
	default:
		b.answer("", link, fmt.Sprintf("the answer returns through this host, which sets its source to %s", was))
	}
}

// servesLocal follows a process's call through the hook at connect() to a real
// server. It reports whether there is such a service.
func (b *balancer) servesLocal(name string, prog datapath.Program, p packet) (packet, bool) {
	s, ok := b.service(model.PlaneEBPF, p.dst)
	if !ok {
		return p, false
	}
	was, client := p.dst, p.src
	if !client.IsValid() { // an unbound socket is hashed with the address that it dials
		client = netip.AddrPortFrom(was.Addr(), 0)
	}
	c, found := s.choose(netip.AddrPortFrom(client.Addr(), 0), was, b.prefer)
	h := Hop{Kind: Connect, Where: b.name(""), By: plan.EBPFService{Balanced: s.Balanced}.Add()[0],
		Program: programText(prog, "the cgroup of the host's processes"), Balance: c.balance}
	if !found {
		h.Why = "the call fails: connection refused"
		b.noReal(h, c, p)
		return p, true
	}
	p.dst = c.at
	if p.src.IsValid() && p.src.Addr().Is4() != p.dst.Addr().Is4() {
		p.src = netip.AddrPort{}
	}
	h.What = fmt.Sprintf("the hook %s redirects the socket: %s sends it from %s to %s (%s)", name, s, was, c.at,
		c.among())
	h.Clue = Clue{Redirected: true, Mapping: datapath.ServiceMapping(s.Service, c.At)}
	b.hop(p, h)
	b.answer("", "", fmt.Sprintf("the answer comes from %s; getpeername returns %s to the process", p.dst, was))
	return p, true
}

// servesNFT follows a packet through Fairlead's table of services at a hook of the
// host. It reports whether there is such a service.
func (b *balancer) servesNFT(hook, in, out string, p packet) (packet, bool) {
	s, ok := b.service(model.PlaneNFT, p.dst)
	if !ok {
		return p, false
	}
	rule := plan.NFTService{Balanced: s.Balanced}
	texts := rule.Rules()
	h := Hop{Kind: NAT, Where: b.name(""), Link: firstOf(in, out), Clue: Clue{Hook: hook, Link: in}, What: hook + ": ",
		By: fmt.Sprintf("inet %s %s: %s", plan.ServicesTable, rule.Chain(), texts[len(texts)-1])}
	c, found := s.choose(p.src, p.dst, b.prefer)
	if !found {
		h.Why = b.refusal()
		b.noReal(h, c, p)
		return p, true
	}
	h.What += fmt.Sprintf("%s: destination NAT from %s to %s (%s)", s, p.dst, c.at, c.among())
	h.Balance = c.balance
	was := p.dst
	p.dst, p.dnat, p.choice = c.at, true, &c
	b.hop(p, h)
	b.answer("", firstOf(in, out), fmt.Sprintf("connection tracking sets the answer's source to %s", was))
	return p, true
}

// hides follows a packet through the source NAT of a service: the real server then
// sees the host's address. It reports whether NAT applies.
func (n *netfilter) hides(r rtnl.RouteFound, p packet) (packet, bool) {
	c := p.choice
	if c == nil || !c.Masquerade || c.Forward != model.ForwardNAT {
		return p, false
	}
	table := plan.ServicesTable
	if c.Plane == model.PlaneIPVS {
		table = plan.IPVSTableName
	}
	was := p.src.Addr()
	p.src = netip.AddrPortFrom(n.sourceAddress("", r, p), 0)
	n.hop(p, Hop{Kind: NAT, Where: n.name(""), Link: r.Link,
		What: fmt.Sprintf("postrouting: source NAT from %s to %s", was, p.src.Addr()),
		By:   "inet " + table + " postrouting: masquerade", Why: sees(*c, p.src.Addr()),
		Clue: Clue{Hook: "postrouting", Link: r.Link}})
	return p, true
}

// servesIPVS follows a packet that would be delivered on the host through IPVS. It
// reports whether IPVS handles it.
func (k *walker) servesIPVS(in string, p packet) bool {
	s, ok := k.balancer.service(model.PlaneIPVS, p.dst)
	if !ok || k.ended {
		return false
	}
	h := Hop{Kind: NAT, Where: k.name(""), Link: in, What: "IPVS: ",
		By: plan.IPVSService{Proto: k.proto, At: p.dst, Scheduler: s.Scheduler, Persistence: s.Persistence}.Add()[0]}
	c, found := s.choose(p.src, p.dst, k.balancer.prefer)
	if !found {
		h.Why = k.balancer.refusal()
		k.balancer.noReal(h, c, p)
		return true
	}
	if known, ok := s.known(c.at, p.dst); ok {
		c.Masquerade = c.Forward == model.ForwardNAT && known.Endpoint == "" && !s.Known.Routed
	}
	was := p.dst
	h.Balance = c.balance
	h.What += fmt.Sprintf("%s sends it from %s to %s (%s)%s", s, was, c.at, c.among(), forwarded(c))
	if c.Forward != model.ForwardNAT {
		h.Kind = Route
		k.hop(p, h)
		k.toServer("", in, was, c, p)
		return true
	}
	p.dst, p.dnat, p.choice = c.at, true, &c
	k.hop(p, h)
	r, ok := k.router.route("", "", packet{dst: p.dst})
	if ok && k.netfilter.filter("", "output", rules.WholeHook, "", r.Link, &p, false) {
		k.balancer.answered(r.Link, was, c)
		k.router.routed("", in, "postrouting", r, p)
		k.leave("", "", r, p)
	}
	return true
}

// failed adds a note if the daemon has a service at the dialled address that could
// not be installed.
func (b *balancer) failed(at netip.AddrPort) {
	for _, s := range b.services.Failed() {
		if slices.Contains(s.Frontends, model.Frontend{Proto: b.proto, At: at}) {
			b.out.Notes = append(b.out.Notes,
				fmt.Sprintf("service %s at %s, which could not be installed in the kernel: %s", s.Name, at, s.Problem))
		}
	}
}
