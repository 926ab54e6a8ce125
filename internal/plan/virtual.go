package plan

import (
	"fmt"
	"net/netip"
	"strings"

	"fairlead/internal/escape"
	"fairlead/internal/model"
)

// VirtualAddress is the address of a virtual service on a link that Fairlead did
// not create. Its prefix has the full length. It has Fairlead's protocol number if
// the kernel records one for addresses (Linux 5.18). An IPv6 one has the preferred
// lifetime 0, so that the host never uses it as a source address.
type VirtualAddress struct {
	Link string
	Addr netip.Addr
}

// Key implements Object.
func (a VirtualAddress) Key() string { return "virtual address " + a.Link + " " + a.Addr.String() }

// Add implements Object.
func (a VirtualAddress) Add() []string {
	flags := ""
	if a.Addr.Is6() {
		flags = " nodad preferred_lft 0"
	}
	return []string{fmt.Sprintf("%s proto %d%s", a.command("replace"), RouteProtocol, flags)}
}

// Del implements Object.
func (a VirtualAddress) Del() []string { return []string{a.command("del")} }

func (a VirtualAddress) base() string { return end("", a.Link) }

func (a VirtualAddress) command(verb string) string {
	return fmt.Sprintf("ip addr %s %s dev %s", verb, netip.PrefixFrom(a.Addr, a.Addr.BitLen()), escape.Shell(a.Link))
}

// Guard protects other listeners of the host from clients of virtual addresses.
// These clients reach the frontends of services; other ports are rejected. Echo
// requests are answered. It is a separate nft table and needs no connection
// tracking: a TCP packet that opens no connection does not reach a listener, and
// datagrams from a frontend's address and port are answers to the host's own
// clients. Such answers have the frontend's address again only after netfilter's
// NAT, so the guard runs after NAT.
type Guard struct {
	// Addresses are the virtual addresses, with port 0.
	Addresses []netip.AddrPort
	// TCP and UDP are the frontends of all services at these addresses.
	TCP, UDP []netip.AddrPort
}

func (g Guard) equal(o Object) bool {
	other, ok := o.(Guard)
	return ok && same(g.Addresses, other.Addresses) && same(g.TCP, other.TCP) && same(g.UDP, other.UDP)
}

// GuardTable is the table's name; its family is inet.
const GuardTable = Mark + "-addresses"

// The sets of the table. Each exists twice, with the suffix 4 or 6.
const (
	SetGuarded      = "addresses"
	SetGuardedPorts = "frontends"
)

// Key implements Object.
func (Guard) Key() string { return "nft table " + GuardTable }

// Add implements Object.
func (g Guard) Add() []string {
	return []string{"nft -f - <<'EOF'\nadd table inet " + GuardTable + "\ndelete table inet " + GuardTable + "\n" +
		g.Text() + "EOF"}
}

// Del implements Object.
func (Guard) Del() []string { return []string{"nft delete table inet " + GuardTable} }

// Text returns the table as nft(8) takes it. Package kernel compiles it for netlink.
func (g Guard) Text() string {
	var b strings.Builder
	b.WriteString("table inet " + GuardTable + " {\n")
	for _, v4 := range []bool{true, false} {
		suffix, kind := "6", "ipv6_addr"
		if v4 {
			suffix, kind = "4", "ipv4_addr"
		}
		set := func(name, kind string, elements []string) {
			fmt.Fprintf(&b, "\tset %s%s {\n\t\ttype %s\n", name, suffix, kind)
			if len(elements) > 0 {
				fmt.Fprintf(&b, "\t\telements = { %s }\n", strings.Join(elements, ", "))
			}
			b.WriteString("\t}\n")
		}
		set(SetGuarded, kind, g.guarded(v4))
		set(SetGuardedPorts, kind+" . inet_proto . inet_service", g.open(v4))
	}
	b.WriteString(guardChains)
	return b.String()
}

const guardChains = `	chain input {
		type filter hook input priority 101; policy accept;
		ip daddr @addresses4 jump closed
		ip6 daddr @addresses6 jump closed
	}
	chain closed {
		meta l4proto icmp accept
		meta l4proto ipv6-icmp accept
		frag frag-off != 0 accept
		ip daddr . meta l4proto . th dport @frontends4 accept
		ip6 daddr . meta l4proto . th dport @frontends6 accept
		ip saddr . meta l4proto . th sport @frontends4 accept
		ip6 saddr . meta l4proto . th sport @frontends6 accept
		tcp flags & (syn | ack) != syn accept
		meta l4proto tcp reject with tcp reset
		reject with icmpx type port-unreachable
	}
}
`

func (g Guard) guarded(v4 bool) []string {
	var all []string
	for _, a := range g.Addresses {
		if a.Addr().Is4() == v4 {
			all = append(all, a.Addr().String())
		}
	}
	return all
}

func (g Guard) open(v4 bool) []string {
	var all []string
	for _, f := range g.Open() {
		if f.At.Addr().Is4() == v4 {
			all = append(all, fmt.Sprintf("%s . %s . %d", f.At.Addr(), f.Proto, f.At.Port()))
		}
	}
	return all
}

// Open returns the frontends, TCP first.
func (g Guard) Open() []model.Frontend {
	var all []model.Frontend
	for _, at := range g.TCP {
		all = append(all, model.Frontend{Proto: model.TCP, At: at})
	}
	for _, at := range g.UDP {
		all = append(all, model.Frontend{Proto: model.UDP, At: at})
	}
	return all
}
