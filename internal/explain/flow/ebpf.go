package flow

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// dataPath is Fairlead's eBPF data path on the host: its programs and mappings.
type dataPath struct {
	*report
	programs Programs
	links    Links
	balancer *balancer
	promises *promises
	proto    model.Proto
}

// mapping returns the port mapping of the eBPF data path for an address and port.
// A mapping for the address takes precedence over one for the unspecified address.
func (d *dataPath) mapping(at netip.AddrPort, hook bool) (plan.EBPFMapping, bool) {
	s, err := d.programs.EBPFState()
	if d.fail(err) {
		return plan.EBPFMapping{}, false
	}
	var best plan.EBPFMapping
	for _, l := range s.Mappings {
		a := at.Addr()
		if l.Proto != d.proto || at.Port() < l.Ports.First || at.Port() > l.Ports.Last || l.Host.Is4() != a.Is4() {
			continue
		}
		if l.Host != a && !l.Host.IsUnspecified() || !hook && (l.To.Is4() != a.Is4() || l.Link == "") {
			continue
		}
		if !best.Host.IsValid() || best.Host.IsUnspecified() {
			best = l
		}
	}
	return best, best.Host.IsValid()
}

// mapsTo returns the target of a port.
func mapsTo(m plan.EBPFMapping, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(m.To, m.ToPorts.First+(port-m.Ports.First))
}

// programAt returns Fairlead's program at a link of the host; the zero value if
// there is none.
func (d *dataPath) programAt(link string) datapath.Program {
	s, err := d.programs.EBPFState()
	if d.fail(err) {
		return datapath.Program{}
	}
	for _, p := range s.Programs {
		if p.Link == link && link != "" && p.AtIngress() {
			return p
		}
	}
	return datapath.Program{}
}

// connectHook follows a packet of a process of the host through the hook at
// connect() or sendmsg().
func (d *dataPath) connectHook(p packet) packet {
	s, err := d.programs.EBPFState()
	if d.fail(err) {
		return p
	}
	name := "fl_connect"
	if d.proto == "udp" {
		name = "fl_sendmsg"
	}
	name += map[bool]string{true: "4", false: "6"}[p.dst.Addr().Is4()]
	for _, prog := range s.Programs {
		if prog.Name != name || prog.Link != "" {
			continue
		}
		m, ok := d.mapping(p.dst, true)
		if !ok || !d.isLocal(p.dst.Addr()) {
			if p, ok = d.balancer.servesLocal(name, prog, p); ok {
				return p
			}
			continue
		}
		was := p.dst
		p.dst = mapsTo(m, was.Port())
		if p.src.IsValid() && (p.src.Addr().IsLoopback() || p.src.Addr().Is4() != p.dst.Addr().Is4()) ||
			!p.src.IsValid() {
			p.src = netip.AddrPort{}
		}
		d.hop(p, Hop{Kind: Connect, Where: d.name(""),
			What: fmt.Sprintf("the hook %s redirects the socket from %s to %s", name, was, p.dst),
			By:   m.Add()[0], Program: programText(prog, "the cgroup of the host's processes"),
			Why:  d.promises.promised(was),
			Clue: Clue{Redirected: true, Mapping: m.Key()}})
		d.answer("", "", fmt.Sprintf("the answer comes from %s; getpeername returns %s to the process", p.dst, was))
		return p
	}
	return p
}

// isLocal reports whether the host has an address.
func (d *dataPath) isLocal(a netip.Addr) bool {
	local, err := addresses(d.links, "")
	if d.fail(err) || a.IsLoopback() {
		return a.IsLoopback()
	}
	for _, p := range local {
		if p.Addr() == a {
			return true
		}
	}
	return false
}

// granted adds the bind hook that assigned a workload the port, if one did.
func (d *dataPath) granted(h *Hop, at netip.AddrPort) {
	s, err := d.programs.EBPFState()
	if d.fail(err) {
		return
	}
	for _, g := range s.Grants {
		if g.Proto == d.proto && g.Ports.Overlaps(model.Port(at.Port())) && g.Host.Is4() == at.Addr().Is4() &&
			(g.Host.IsUnspecified() || g.Host == at.Addr()) {
			h.What += fmt.Sprintf("; the hook at bind assigned this port when the workload asked for %d", g.Own.First+
				(at.Port()-g.Ports.First))
			h.By = g.Add()[0]
			h.Why = d.promises.quotes(model.ViaSocket, model.DriverHost, false, at)
			return
		}
	}
}

func programText(p datapath.Program, where string) string {
	text := fmt.Sprintf("%s (id %d) at %s", p.Name, p.ID, where)
	if p.Pin != "" {
		text += ", pinned as " + p.Pin
	}
	return text
}

// usesEBPF follows a packet that arrives on a link of the host through Fairlead's
// program at the link. It reports whether the program forwards the packet.
// Packets from or to 127.0.0.0/8 and ::1 are left to the kernel.
func (k *walker) usesEBPF(link string, p packet) bool {
	prog := k.dataPath.programAt(link)
	if prog.Name == "" || p.dst.Addr().IsLoopback() || p.src.Addr().IsLoopback() {
		return false
	}
	m, ok := k.dataPath.mapping(p.dst, false)
	if !ok || !k.dataPath.isLocal(p.dst.Addr()) {
		return k.serves(link, prog, p) || k.goesOut(link, prog, p)
	}
	was := p.dst
	p.dst = mapsTo(m, was.Port())
	h := Hop{Kind: EBPF, Where: k.name(""), Link: link,
		What: fmt.Sprintf("eBPF: redirects it from %s to %s, into the sandbox behind %s, bypassing netfilter and conntrack", was, p.dst, m.Link),
		By:   m.Add()[0], Program: programText(prog, "tcx ingress of "+link), Why: k.promises.promised(was),
		Clue: Clue{Translated: true, Mapping: m.Key()}}
	if p.src.Addr() == p.dst.Addr() {
		p.src = netip.AddrPortFrom(m.Masquerade, 0)
		h.What += fmt.Sprintf("; the source becomes %s, because the sandbox reaches itself", m.Masquerade)
	}
	k.unseen(link)
	k.hop(p, h)
	port, ok := linkOf(k.world.Links, "", m.Link)
	if !ok {
		k.end(Unknown, "link %s no longer exists, but the port mapping still names it", m.Link)
		return true
	}
	k.answer("", m.Link, fmt.Sprintf("eBPF: the program at %s sets the answer's source to %s and sends it out via %s",
		m.Link, was, link))
	end, ok := k.world.Links.Peer("", port)
	if !ok {
		k.end(Unknown, "it enters the namespace behind %s, which cannot be found", m.Link)
		return true
	}
	k.returns = end.Name
	k.come("", port, end, p)
	return true
}

// goesOut follows a packet with which a sandbox opens a connection to a host outside, if
// Fairlead's program at its link translates it. It reports whether the program does.
func (k *walker) goesOut(link string, prog datapath.Program, p packet) bool {
	s, err := k.world.Programs.EBPFState()
	if k.reply || k.fail(err) || !p.dst.Addr().Is4() || p.dst.Addr().IsMulticast() {
		return false
	}
	i := slices.IndexFunc(s.Outbound, func(o plan.Outbound) bool { return o.Link == link })
	if i < 0 {
		return false
	}
	router := s.Outbound[i].Router
	r, err := k.world.Routes.Route("", rtnl.RouteQuery{To: p.dst.Addr(), From: p.src.Addr(), In: router})
	from, known := s.Sources[r.Link]
	next := r.Via
	if !next.IsValid() {
		next = p.dst.Addr()
	}
	if err != nil || r.Type != unix.RTN_UNICAST || !known || !from.Contains(next) {
		return false // the kernel decides
	}
	k.router.selects("", p)
	k.router.protects("", p)
	p.src = netip.AddrPortFrom(from.Addr(), 0)
	k.unseen(link)
	k.hop(p, Hop{Kind: EBPF, Where: k.name(""), Link: link,
		What: fmt.Sprintf("eBPF: source NAT to %s with one of the ports %s, and out via %s, bypassing %s, netfilter "+
			"and conntrack", from.Addr(), plan.OutboundPorts, r.Link, router),
		By: s.Outbound[i].Add()[0], Program: programText(prog, "tcx ingress of "+link),
		Why: "the network has outbound ebpf: no rule of the host decides about the packet"})
	l, ok := linkOf(k.world.Links, "", r.Link)
	if !ok {
		k.end(Unknown, "link %s no longer exists", r.Link)
		return true
	}
	k.answer("", r.Link, fmt.Sprintf("eBPF: the program at %s translates the answer back and redirects it into the "+
		"sandbox behind %s", r.Link, link))
	if !k.wire.isDown(End{"", l}, p) {
		k.transmit("", l, next, p)
	}
	return true
}
