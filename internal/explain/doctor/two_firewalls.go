package doctor

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/kernel/rules"
)

// twoFirewalls reports rules of legacy iptables beside those of nftables.
func twoFirewalls(h Host) []Finding {
	var legacy, modern []string
	for _, c := range h.Rules {
		table, old := strings.CutSuffix(c.Table, rules.LegacyMark)
		switch {
		case len(c.Rules) == 0 && (c.Policy == "" || c.Policy == rules.Accept):
		case old && !slices.Contains(legacy, table):
			legacy = append(legacy, table)
		case !old && slices.Contains([]string{"ip", "ip6", "inet"}, c.Family()) && !slices.Contains(modern, table):
			modern = append(modern, table)
		}
	}
	if len(legacy) == 0 || len(modern) == 0 {
		return nil
	}
	return []Finding{{Severity: Warning,
		Seen: fmt.Sprintf("there are rules of legacy iptables (%s) and of nftables (%s)", list(legacy), list(modern)),
		Why:  "a packet passes both, and one may drop what the other accepts; each program shows its own rules only",
		Fix:  strings.Join(moves(legacy), "; ")}}
}

// moves returns the commands that copy the rules of the legacy tables to
// nftables and empty the legacy tables, one command for each family that has some.
func moves(legacy []string) []string {
	var all []string
	for family, program := range map[string]string{"ip": "iptables", "ip6": "ip6tables"} {
		if slices.ContainsFunc(legacy, func(table string) bool { return strings.HasPrefix(table, family+" ") }) {
			all = append(all, strings.NewReplacer("PROGRAM", program, "FAMILY",
				family).Replace("PROGRAM-legacy-save | PROGRAM-nft-restore -n"+
				" && for c in INPUT FORWARD OUTPUT; do PROGRAM-legacy -P $c ACCEPT; done"+
				" && for t in $(cat /proc/net/FAMILY_tables_names); do PROGRAM-legacy -t $t -F; PROGRAM-legacy -t $t -X; done"))
		}
	}
	slices.Sort(all)
	return all
}
