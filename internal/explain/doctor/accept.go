package doctor

import (
	"regexp"
	"slices"
	"strings"

	"fairlead/internal/escape"
	"fairlead/internal/kernel/rules"
)

// accepting are rules that accept packets, as arguments of iptables and as rules of nftables
// (nft(8)). links are the links that they name.
type accepting struct {
	links    []string
	iptables []string
	nft      []string
}

// dockerUser is the chain to which Docker's rules for forwarded packets jump first. Docker
// keeps the rules of users there.
const dockerUser = "DOCKER-USER"

// accept returns the command that puts rules before those that dropped a forwarded packet, in
// the table that dropped it. It returns false if no command can: the table has several chains
// for forwarded packets, or nftables cannot express a name.
func (h Host) accept(v rules.Verdict, by accepting) (command string, ok bool) {
	table, legacy := strings.CutSuffix(v.By.Table, rules.LegacyMark)
	base := h.base(v.By.Table, "forward")
	family, name, _ := strings.Cut(table, " ")
	var lines []string
	switch {
	case base == "":
		return "", false
	case h.isIPTables(v.By.Table):
		tool := map[string]string{"ip": "iptables", "ip6": "ip6tables"}[family]
		if legacy {
			tool += "-legacy"
		}
		if name != "filter" {
			tool += " -t " + name
		}
		if jumps(v, dockerUser) {
			base = dockerUser
		}
		for _, rule := range by.iptables {
			lines = append(lines, tool+" -I "+base+" "+rule)
		}
	default:
		if slices.ContainsFunc(append([]string{name, base}, by.links...), notPlain) {
			return "", false
		}
		for _, rule := range by.nft {
			lines = append(lines, "nft insert rule "+table+" "+base+" "+rule)
		}
	}
	return strings.Join(lines, " && "), true
}

// base returns the only filter chain of a table at a hook. It is empty if there is none, or
// several.
func (h Host) base(table, hook string) (name string) {
	for _, c := range h.Rules {
		if c.Table != table || c.Hook != hook || c.Type != "filter" {
			continue
		}
		if name != "" {
			return ""
		}
		name = c.Name
	}
	return name
}

// tablesOfIPTables are the tables of iptables (iptables(8)).
var tablesOfIPTables = []string{"filter", "nat", "mangle", "raw", "security"}

// isIPTables reports whether iptables manages a table: the names of its chains at hooks are
// those of iptables. A table of nftables may have the same name as one of iptables.
func (h Host) isIPTables(table string) bool {
	native, legacy := strings.CutSuffix(table, rules.LegacyMark)
	family, name, _ := strings.Cut(native, " ")
	if legacy || family != "ip" && family != "ip6" || !slices.Contains(tablesOfIPTables, name) {
		return legacy
	}
	return !slices.ContainsFunc(h.Rules, func(c rules.Chain) bool {
		return c.Table == table && c.Hook != "" && c.Name != strings.ToUpper(c.Hook)
	})
}

// jumps reports whether the packet got to a chain of the table that dropped it, before it was
// dropped.
func jumps(v rules.Verdict, chain string) bool {
	return slices.ContainsFunc(v.Met, func(s rules.Step) bool {
		return s.Table == v.By.Table && s.Rule.Action == rules.Jump && s.Rule.Chain == chain && s.Certain
	})
}

// plain are the names that nft(8) reads without quotes.
var plain = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)

func notPlain(name string) bool { return !plain.MatchString(name) }

// outOf returns the rules that accept what sandboxes behind a link send, and the packets of
// their connections and of their published ports.
func outOf(link string) accepting {
	l := escape.Shell(link)
	return accepting{[]string{link},
		[]string{"-i " + l + " -j ACCEPT", "-o " + l + " -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT"},
		[]string{"iifname " + l + " accept", "oifname " + l + " ct state established,related accept",
			"oifname " + l + " ct status dnat accept"}}
}

// within returns the rules that accept what sandboxes behind a bridge send to each other.
func within(bridge string) accepting {
	l := escape.Shell(bridge)
	return accepting{[]string{bridge}, []string{"-i " + l + " -o " + l + " -j ACCEPT"},
		[]string{"iifname " + l + " oifname " + l + " accept"}}
}
