package flow

import (
	"fmt"
	"net/netip"

	"fairlead/internal/kernel"
	"fairlead/internal/plan"
)

// mapping finds what our eBPF table has for an address and port. An address
// comes before any.
func (k *walker) mapping(at netip.AddrPort, hook bool) (plan.EBPFMapping, bool) {
	s, err := k.EBPFState()
	if k.fail(err) {
		return plan.EBPFMapping{}, false
	}
	var best plan.EBPFMapping
	for _, l := range s.Mappings {
		a := at.Addr()
		if l.Proto != k.proto || at.Port() < l.Ports.First || at.Port() > l.Ports.Last || l.Host.Is4() != a.Is4() {
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

// mapsTo is where a lead leads the port.
func mapsTo(l plan.EBPFMapping, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(l.To, l.ToPorts.First+(port-l.Ports.First))
}

// programAt is our program at a link of the host.
func (k *walker) programAt(link string) kernel.Program {
	s, err := k.EBPFState()
	if k.fail(err) {
		return kernel.Program{}
	}
	for _, p := range s.Programs {
		if p.Link == link && link != "" {
			return p
		}
	}
	return kernel.Program{}
}

// turn walks a packet of the host's own through the hook at connect().
func (k *walker) turn(p packet) packet {
	s, err := k.EBPFState()
	if k.fail(err) {
		return p
	}
	name := "fl_connect"
	if k.proto == "udp" {
		name = "fl_sendmsg"
	}
	name += map[bool]string{true: "4", false: "6"}[p.dst.Addr().Is4()]
	for _, prog := range s.Programs {
		if prog.Name != name || prog.Link != "" {
			continue
		}
		l, ok := k.mapping(p.dst, true)
		if !ok || !k.isHosts(p.dst.Addr()) {
			if p, ok = k.servesLocal(name, prog, p); ok {
				return p
			}
			continue
		}
		was := p.dst
		p.dst = mapsTo(l, was.Port())
		if p.src.IsValid() && (p.src.Addr().IsLoopback() || p.src.Addr().Is4() != p.dst.Addr().Is4()) || !p.src.IsValid() {
			p.src = netip.AddrPort{}
		}
		k.hop(p, Hop{Kind: Connect, Where: k.Name(""), What: fmt.Sprintf("the hook %s turns the socket from %s to %s", name, was, p.dst),
			By: l.Add()[0], Program: programText(prog, "the cgroup of the host's processes"), Why: k.promised(was), Clue: Clue{Turned: true, Lead: l.Key()}})
		k.answer("", "", fmt.Sprintf("the answer comes from %s; getpeername tells the process %s", p.dst, was))
		return p
	}
	return p
}

// isHosts reports whether an address is the host's own.
func (k *walker) isHosts(a netip.Addr) bool {
	own, err := addresses(k, "")
	if k.fail(err) || a.IsLoopback() {
		return a.IsLoopback()
	}
	for _, p := range own {
		if p.Addr() == a {
			return true
		}
	}
	return false
}

func programText(p kernel.Program, where string) string {
	text := fmt.Sprintf("%s (id %d) at %s", p.Name, p.ID, where)
	if p.Pin != "" {
		text += ", pinned as " + p.Pin
	}
	return text
}

// usesEBPF walks a packet that comes in by a link of the host through our
// program there, and reports whether it has led it on. Packets from or for
// 127.0.0.0/8 and ::1 are left to the kernel.
func (k *walker) usesEBPF(link string, p packet) bool {
	prog := k.programAt(link)
	if prog.Name == "" || p.dst.Addr().IsLoopback() || p.src.Addr().IsLoopback() {
		return false
	}
	l, ok := k.mapping(p.dst, false)
	if !ok || !k.isHosts(p.dst.Addr()) {
		return k.serves(link, prog, p)
	}
	was := p.dst
	p.dst = mapsTo(l, was.Port())
	h := Hop{Kind: EBPF, Where: k.Name(""), Link: link, What: fmt.Sprintf("eBPF: leads it from %s to %s, past netfilter and conntrack, into the sandbox behind %s", was, p.dst, l.Link),
		By: l.Add()[0], Program: programText(prog, "tcx ingress of "+link), Why: k.promised(was), Clue: Clue{Translated: true, Lead: l.Key()}}
	if p.src.Addr() == p.dst.Addr() {
		p.src = netip.AddrPortFrom(l.Masquerade, 0)
		h.What += fmt.Sprintf(", as from %s since it reaches itself", l.Masquerade)
	}
	k.unseen(link)
	k.hop(p, h)
	port, ok := linkOf(k, "", l.Link)
	if !ok {
		k.end(Unknown, "link %s is gone: its lead leads nowhere", l.Link)
		return true
	}
	k.answer("", l.Link, fmt.Sprintf("eBPF: the program at %s gives the answer the source %s and sends it out by %s", l.Link, was, link))
	end, ok := k.Peer("", port)
	if !ok {
		k.end(Unknown, "it goes into the namespace behind %s, which nobody here can name", l.Link)
		return true
	}
	k.come("", port, end, p)
	return true
}
