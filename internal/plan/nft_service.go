package plan

import (
	"fmt"
	"strings"

	"fairlead/internal/model"
)

// ServiceTable is the skeleton of the nft table for the virtual services of the
// data plane nft. It is a separate table, so that a host without such a service has
// none of its rules.
type ServiceTable struct {
	// Damaged is true for an observed table that must be replaced.
	Damaged bool
}

// ServicesTable is the table's name; its family is inet.
const ServicesTable = Mark + "-services"

// The maps and sets of the table. Each exists twice, with the suffix 4 or 6.
const (
	// MapServices: virtual address . protocol . port -> the service's chain.
	MapServices = "services"
	// MapSourceNAT: virtual address . protocol . address and port of the real
	// server . virtual port -> accept if the real server sees the client, goto
	// masqueraded if it sees the host.
	MapSourceNAT = "answers"
	// MapPersistent: keys of MapSourceNAT, for the real servers that get new flows
	// of a persistent service -> the service's chain that records the client.
	MapPersistent = "persistent"
	// SetFrontends: the keys of MapServices.
	SetFrontends = "frontends"
)

// Key implements Object.
func (ServiceTable) Key() string { return "nft table of services" }

func (ServiceTable) group() Group { return GroupServices }

// Add implements Object.
func (ServiceTable) Add() []string { return []string{"nft -f - <<'EOF'\n" + ServiceTableText + "EOF"} }

// Del implements Object.
func (ServiceTable) Del() []string { return []string{"nft delete table inet " + ServicesTable} }

// ServiceTableText is the skeleton as nft takes it. Package kernel compiles it for
// netlink.
//
// Only the first packet of a flow passes the chains of type nat; conntrack
// translates the others. A TCP packet to a frontend that conntrack calls invalid
// belongs to a connection whose real server was removed: it is rejected with a
// reset. For persistent services, the chains of type filter record the client of
// each new flow. They run before any chain changes the source address, and chains
// of type nat of other tables cannot skip them. All other packets pass only the
// first rule of these chains.
//
// Each element of a map with a counter counts flows: those of a service, or those
// of one of its real servers.
var ServiceTableText = serviceTableText()

func serviceTableText() string {
	var b strings.Builder
	each := func(line string) {
		b.WriteString(strings.NewReplacer("FAMILY", "4", "ADDR", "ipv4_addr", "IP", "ip").Replace(line))
		b.WriteString(strings.NewReplacer("FAMILY", "6", "ADDR", "ipv6_addr", "IP", "ip6").Replace(line))
	}
	base := func(name, kind, hook, priority string) {
		fmt.Fprintf(&b, "\tchain %s {\n\t\ttype %s hook %s priority %s; policy accept;\n", name, kind, hook, priority)
	}
	b.WriteString("table inet " + ServicesTable + " {\n")
	each("\tmap servicesFAMILY {\n\t\ttype ADDR . inet_proto . inet_service : verdict\n\t\tcounter\n\t}\n")
	each("\tmap answersFAMILY {\n\t\ttype ADDR . inet_proto . ADDR . inet_service . inet_service : verdict\n\t\tcounter\n\t}\n")
	each("\tmap persistentFAMILY {\n\t\ttype ADDR . inet_proto . ADDR . inet_service . inet_service : verdict\n\t}\n")
	each("\tset frontendsFAMILY {\n\t\ttype ADDR . inet_proto . inet_service\n\t}\n")
	for _, hook := range []struct{ name, priority string }{{"prerouting", "dstnat"}, {"output", "-100"}} {
		base(hook.name, "nat", hook.name, hook.priority)
		each("\t\tIP daddr . meta l4proto . th dport vmap @servicesFAMILY\n")
		b.WriteString("\t}\n")
	}
	const opened = "\t\tct state new ct status dnat jump opened\n\t}\n"
	base("translated", "filter", "prerouting", "-99")
	b.WriteString("\t\tct state established,related accept\n")
	each("\t\tct state invalid meta l4proto tcp IP daddr . meta l4proto . th dport @frontendsFAMILY reject with tcp reset\n")
	b.WriteString(opened)
	base("translated-local", "filter", "output", "-99")
	b.WriteString(opened)
	const translated, port = "ct original IP daddr . meta l4proto . IP daddr . ", " dport . ct original proto-dst"
	base("postrouting", "nat", "postrouting", "srcnat")
	for _, proto := range []string{"tcp", "udp"} {
		each("\t\tct status dnat meta l4proto " + proto + " " + translated + proto + port + " vmap @answersFAMILY\n")
	}
	b.WriteString("\t}\n\tchain opened {\n")
	for _, proto := range []string{"tcp", "udp"} {
		each("\t\tmeta l4proto " + proto + " " + translated + proto + port + " vmap @persistentFAMILY\n")
	}
	b.WriteString("\t}\n\tchain masqueraded {\n\t\tmasquerade\n\t}\n}\n")
	return b.String()
}

// NFTService is a virtual service in the nft table: a chain that chooses a bucket,
// and a map from buckets to real servers.
type NFTService struct {
	Balanced
	// Damaged is true if any part of the service in the kernel differs from what
	// Fairlead wrote. All existing parts must then be removed.
	Damaged bool
}

func (s NFTService) equal(o Object) bool {
	other, ok := o.(NFTService)
	return ok && s.Damaged == other.Damaged && s.Balanced.equal(other.Balanced)
}

// Key implements Object.
func (s NFTService) Key() string { return "nft service " + s.Service }

func (NFTService) group() Group { return GroupServices }

// The prefixes of the names of a service's chains and maps.
const (
	prefixService = "service-"
	prefixReals   = "reals-"
	prefixKeep    = "keep-"
	prefixClients = "clients-"
)

// Chain names the service's chain.
func (s NFTService) Chain() string { return prefixService + nftName(s.Service) }

// Reals names the map of the service's buckets to real servers.
func (s NFTService) Reals() string { return prefixReals + nftName(s.Service) }

// Keep names the chain that records the clients of the service.
func (s NFTService) Keep() string { return prefixKeep + nftName(s.Service) }

// Clients names the map from clients to their real servers. Its elements expire.
func (s NFTService) Clients() string { return prefixClients + nftName(s.Service) }

// Remembers reports whether the service records its clients (persistence).
func (s NFTService) Remembers() bool { return s.Persistence > 0 && len(s.Ring) > 0 }

// NFTServiceOf returns the name of the service that a chain or map of the table
// belongs to. It returns false for chains and maps of the skeleton.
func NFTServiceOf(name string) (service string, ok bool) {
	for _, prefix := range []string{prefixService, prefixReals, prefixKeep, prefixClients} {
		if escaped, found := strings.CutPrefix(name, prefix); found {
			return nftUnname(escaped), true
		}
	}
	return "", false
}

// IsReals reports whether the name is that of a map from buckets to real servers.
func IsReals(name string) bool { return strings.HasPrefix(name, prefixReals) }

// MaxNFTName is the maximum length of a service's escaped name in bytes.
const MaxNFTName = 200

// nftName escapes a name for nft: bytes other than letters, digits, dots and dashes
// become _ and two hexadecimal digits.
func nftName(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}

// nftUnname is the reverse of nftName.
func nftUnname(escaped string) string {
	var b strings.Builder
	for i := 0; i < len(escaped); i++ {
		var c byte
		if escaped[i] == '_' {
			if n, _ := fmt.Sscanf(escaped[i:], "_%02x", &c); n == 1 {
				b.WriteByte(c)
				i += 2
				continue
			}
		}
		b.WriteByte(escaped[i])
	}
	return b.String()
}

// Is4 reports whether the service's real servers are of IPv4.
func (s NFTService) Is4() bool {
	for _, b := range s.Backends {
		return b.At.Addr().Is4()
	}
	return true
}

// KeepsPort reports whether the real servers get the port that the client connected
// to.
func (s NFTService) KeepsPort() bool {
	for _, b := range s.Backends {
		return b.At.Port() == 0
	}
	return false
}

// clientsHavePort reports whether the map of clients contains the port of the real
// server. For IPv6 it does not: nft(8) 1.0.6 prints a rule with such a long value,
// but aborts when it reads the rule again. Then all real servers that get new flows
// have the same port.
func (s NFTService) clientsHavePort() bool { return s.Is4() && !s.KeepsPort() }

// anyPort returns the port of one of the targets; 0 if there are none.
func (s NFTService) anyPort() uint16 {
	for at := range s.Targets() {
		return at.Port()
	}
	return 0
}

// ClientsPort returns the port of a client's real server if the map of clients does
// not contain it. It returns 0 if the map contains it or if the client's port is
// kept.
func (s NFTService) ClientsPort() uint16 {
	if s.clientsHavePort() {
		return 0
	}
	return s.anyPort()
}

// Hashes reports whether a flow's bucket depends on its addresses and ports only.
// Then other hosts, and this host after conntrack has dropped the flow, choose the
// same bucket.
func (s NFTService) Hashes() bool { return s.Scheduler.Traits().Hashes != model.NoKey }
