package plan

import (
	"fmt"
	"strings"

	"fairlead/internal/model"
)

// ServiceTable is the skeleton of the nft table that holds the virtual services
// of the plane nft. It is a table of its own, so that a host without such a
// service has none of its rules.
type ServiceTable struct{}

// ServicesTable is the table's name; its family is inet.
const ServicesTable = Mark + "-services"

// The maps and sets of the table; each exists twice, with the suffix 4 or 6.
const (
	// MapServices: virtual address . protocol . port -> the service's chain.
	MapServices = "services"
	// MapSourceNAT: virtual address . protocol . address and port of the real server
	// . virtual port -> whether the real server sees the client (accept) or the
	// host (goto masqueraded).
	MapSourceNAT = "answers"
	// MapPersistent: the keys of MapSourceNAT, of real servers that get new flows
	// and that clients keep -> the service's chain that remembers them.
	MapPersistent = "persistent"
	// SetFrontends: the keys of MapServices.
	SetFrontends = "frontends"
)

// Key implements Object.
func (ServiceTable) Key() string { return "nft table of services" }

// Add implements Object.
func (ServiceTable) Add() []string { return []string{"nft -f - <<'EOF'\n" + ServiceTableText + "EOF"} }

// Del implements Object.
func (ServiceTable) Del() []string { return []string{"nft delete table inet " + ServicesTable} }

// ServiceTableText is the skeleton as nft takes it. Package kernel builds the
// same through netlink, and a test there compares the two.
//
// The chains of type nat meet the first packet of a flow; conntrack repeats the
// answer for the rest. What conntrack knows nothing of, and cannot begin a flow,
// comes from a connection whose real server is gone: its client is told. Of what
// is new and was led, some clients are remembered: before anybody rewrites where
// it is from, and where a later chain of type nat cannot keep it from us. Every
// packet meets one rule of these chains, and no other.
//
// Each element of a map counts what meets it: the flows of a service, and those
// of each of its real servers.
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

// NFTService is a virtual service in our nft table: a chain, which chooses a
// bucket, and a map of buckets to real servers.
type NFTService struct {
	Balanced
	// Damaged says that something of it is otherwise in the kernel, whatever: all
	// that is there has to go.
	Damaged bool
}

// Key implements Object.
func (s NFTService) Key() string { return "nft service " + s.Service }

// The prefixes of the names of a service's own chain and maps.
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

// Keep names the chain that remembers a client of the service, and Clients the
// map of clients to their real servers, whose elements expire.
func (s NFTService) Keep() string { return prefixKeep + nftName(s.Service) }

// Clients is said with Keep.
func (s NFTService) Clients() string { return prefixClients + nftName(s.Service) }

// Remembers reports whether the service remembers clients.
func (s NFTService) Remembers() bool { return s.Persistence > 0 && s.Ring != "" }

// NFTServiceOf returns the name of the service that a chain or map of the table
// belongs to; ok is false for those of the skeleton.
func NFTServiceOf(name string) (service string, ok bool) {
	for _, prefix := range []string{prefixService, prefixReals, prefixKeep, prefixClients} {
		if escaped, found := strings.CutPrefix(name, prefix); found {
			return nftUnname(escaped), true
		}
	}
	return "", false
}

// IsReals reports whether the name is that of a map of buckets.
func IsReals(name string) bool { return strings.HasPrefix(name, prefixReals) }

// MaxNFTName is as long, in bytes, as the escaped name of a service may be.
const MaxNFTName = 200

// nftName writes a name as nft can read it: bytes other than letters, digits,
// dots and dashes become _ and two hexadecimal digits.
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
	for _, b := range s.Backends.List() {
		return b.At.Addr().Is4()
	}
	return true
}

// KeepsPort reports whether real servers are asked at the port that the client
// has dialled.
func (s NFTService) KeepsPort() bool {
	for _, b := range s.Backends.List() {
		return b.At.Port() == 0
	}
	return false
}

// clientsHavePort reports whether a client is remembered with the port of its
// real server. In IPv6 that is too long a value for nft(8) 1.0.6, which prints
// the rule, and aborts where it reads it again; so there all that get new flows
// have one port.
func (s NFTService) clientsHavePort() bool { return s.Is4() && !s.KeepsPort() }

// anyPort returns the port of one of those, 0 where there is none.
func (s NFTService) anyPort() uint16 {
	for at := range s.Targets() {
		return at.Port()
	}
	return 0
}

// ClientsPort returns the port that a client's real server is asked at, where the
// map of clients does not tell; 0 where it does, or the port is kept.
func (s NFTService) ClientsPort() uint16 {
	if s.clientsHavePort() {
		return 0
	}
	return s.anyPort()
}

// Hashes reports whether a flow's bucket follows from its addresses alone, so
// that another host, or this one after conntrack has forgotten it, chooses the
// same.
func (s NFTService) Hashes() bool {
	return s.Scheduler == model.MaglevHashing || s.Scheduler == model.SourceHashing
}
