package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// FilterName is the name of Fairlead's chain in the filter tables of iptables.
const FilterName = "FAIRLEAD"

// FilterExits is the name of the chain that accepts packets that leave through the
// host's uplinks.
const FilterExits = FilterName + "-OUT"

// Firewall is a filter table of iptables in which Docker drops forwarded packets:
// chain FORWARD has the policy DROP, and a chain DOCKER-USER exists.
type Firewall struct {
	V4 bool
	// Legacy is true if the table belongs to iptables-legacy, and false if to
	// iptables-nft.
	Legacy bool
	// Chain is the chain that must jump to Fairlead's: DOCKER-USER if FORWARD jumps
	// there, or else FORWARD itself.
	Chain string
	// Place is the jump's rule number, from 1: after all rules of other programs,
	// but before a RETURN that ends the chain.
	Place int
	// Exits are the host's links through which packets of sandboxes may leave,
	// sorted and separated by blanks. Bridges of other container engines are not
	// included.
	Exits string
}

// FilterChain accepts the forwarded packets of Fairlead's networks in a filter
// table of iptables. It consists of Fairlead's chains and one jump to them.
type FilterChain struct {
	Firewall
	// Rules are the rules of both chains as iptables-save prints them, one per
	// line.
	Rules string
}

// Key implements Object.
func (f FilterChain) Key() string { return f.tool("") + " " + FilterName }

// Add implements Object.
func (f FilterChain) Add() []string {
	return []string{f.tool("-restore") + " --noflush <<'EOF'\n" + f.Restore(nil) + "EOF"}
}

// Del implements Object.
func (f FilterChain) Del() []string {
	tool := f.tool("")
	return []string{fmt.Sprintf("%s -D %s %s", tool, f.Chain, f.jump()),
		fmt.Sprintf("%[1]s -F %[2]s && %[1]s -X %[2]s", tool, FilterName),
		fmt.Sprintf("%[1]s -F %[2]s && %[1]s -X %[2]s", tool, FilterExits)}
}

// change implements changer. It replaces the chains and leaves exactly one jump.
func (f FilterChain) change(old Object) []string {
	o, ok := old.(FilterChain)
	if !ok || o.Chain == "" {
		return f.Add()
	}
	return []string{f.tool("-restore") + " --noflush <<'EOF'\n" +
		f.Restore([]string{"-D " + o.Chain + " " + o.jump()}) + "EOF"}
}

func (f FilterChain) jump() string {
	return fmt.Sprintf(`-m comment --comment "%s: its networks" -j %s`, Mark, FilterName)
}

// Restore returns the input for iptables-restore that makes the chains and the
// jump. The commands in first delete existing jumps.
func (f FilterChain) Restore(first []string) string {
	lines := append([]string{"*filter", ":" + FilterName + " - [0:0]", ":" + FilterExits + " - [0:0]"}, first...)
	lines = append(lines, strings.TrimSuffix(f.Rules, "\n"), fmt.Sprintf("-I %s %d %s", f.Chain, f.Place, f.jump()),
		"COMMIT", "")
	return strings.Join(lines, "\n")
}

// Unrestore returns the input for iptables-restore that removes the chains. The
// commands in first delete the jumps.
func (f FilterChain) Unrestore(first []string) string {
	lines := append([]string{"*filter", ":" + FilterName + " - [0:0]", ":" + FilterExits + " - [0:0]"}, first...)
	return strings.Join(append(lines, "-X "+FilterName, "-X "+FilterExits, "COMMIT", ""), "\n")
}

// tool returns the name of the iptables program for this table, with a suffix.
func (f Firewall) tool(suffix string) string {
	name := "ip6tables"
	if f.V4 {
		name = "iptables"
	}
	if f.Legacy {
		name += "-legacy"
	}
	return name + suffix
}

// RoutedRange is traffic within a network whose sandboxes each have a link of their
// own: the host routes it. The addresses distinguish such networks, because one
// pattern matches the links of all of them.
type RoutedRange struct {
	From, To netip.Prefix
	// Remote means that the sources are on another host of the LAN.
	Remote bool
}

// FilterChains returns the chains that the firewalls need for the links of networks
// in the parts, and for the traffic within routed networks. The chains accept no more
// than Docker accepts for its bridges: packets within a network, packets of existing
// connections, packets that NAT has translated to a network, and new packets from a
// network that is not internal to the host's uplinks.
func FilterChains(firewalls []Firewall, parts []Part, routed []RoutedRange) Plan {
	if len(firewalls) == 0 {
		return nil
	}
	in, internal := map[string]map[string]bool{}, map[string]bool{}
	for _, p := range parts {
		for _, o := range p.objects {
			switch o := o.(type) {
			case Link:
				if o.Group == InternalLinks {
					internal[filterLink(o.Name)] = true
				}
			case Member:
				if in[o.Set] == nil {
					in[o.Set] = map[string]bool{}
				}
				in[o.Set][filterLink(o.Link)] = true
			}
		}
	}
	links := slices.Sorted(maps.Keys(in[SetLinks]))
	if len(links) == 0 {
		return nil
	}
	var all Plan
	for _, f := range firewalls {
		all = append(all, FilterChain{f, routedRules(f, links, routed) + filterRules(f, links, in, internal)})
	}
	return all
}

// filterLink returns the link's name in the rules. A routed network has one link
// per endpoint, and one rule per link would slow down every packet. The names of
// these links begin with fv, and no other link that routes packets has such a name,
// so one rule with a wildcard matches them all.
func filterLink(link string) string {
	if strings.HasPrefix(link, "fv-") || strings.HasPrefix(link, "fv_") {
		return link[:3] + "+"
	}
	return link
}

// routedRules writes the rules for the traffic within routed networks.
func routedRules(f Firewall, links []string, routed []RoutedRange) string {
	links = slices.DeleteFunc(slices.Clone(links), func(link string) bool { return !strings.HasSuffix(link, "+") })
	var b strings.Builder
	for _, r := range routed {
		if r.To.Addr().Is4() != f.V4 {
			continue
		}
		for _, to := range links {
			from := []string{""}
			if !r.Remote {
				from = links
			}
			for _, in := range from {
				fmt.Fprintf(&b, "-A %s -s %s -d %s", FilterName, r.From, r.To)
				if in != "" {
					b.WriteString(" -i " + in)
				}
				fmt.Fprintf(&b, " -o %s -m comment --comment %s -j ACCEPT\n", to, Mark)
			}
		}
	}
	return b.String()
}

// filterRules writes the rules for the links, which are members of sets of the nft
// table. Some of them are links of internal networks.
func filterRules(f Firewall, links []string, in map[string]map[string]bool, internal map[string]bool) string {
	var b strings.Builder
	accept := func(chain, match string) {
		fmt.Fprintf(&b, "-A %s %s -m comment --comment %s -j ACCEPT\n", chain, match, Mark)
	}
	for _, link := range links {
		if in[SetWithin][link] {
			accept(FilterName, fmt.Sprintf("-i %[1]s -o %[1]s", link))
		}
		if internal[link] && !strings.HasSuffix(link, "+") {
			continue
		}
		accept(FilterName, "-i "+link+" -m conntrack --ctstate RELATED,ESTABLISHED")
		accept(FilterName, "-o "+link+" -m conntrack --ctstate RELATED,ESTABLISHED")
		accept(FilterName, "-o "+link+" -m conntrack --ctstate DNAT")
		if !in[SetLAN][link] {
			fmt.Fprintf(&b, "-A %s -i %s -m comment --comment %s -j %s\n", FilterName, link, Mark, FilterExits)
		}
	}
	for exit := range strings.FieldsSeq(f.Exits) {
		accept(FilterExits, "-o "+exit)
	}
	return b.String()
}
