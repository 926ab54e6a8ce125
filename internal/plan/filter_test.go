package plan_test

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/plan"
)

// TestRoutedNetworksInDockersFirewall checks that packets within a routed network are accepted by their addresses,
// also those from its part on another host. The links of all routed networks match one pattern.
func TestRoutedNetworksInDockersFirewall(t *testing.T) {
	part := plan.NewPart(plan.Plan{plan.Member{Set: plan.SetLinks, Link: "fv-web"},
		plan.Member{Set: plan.SetLinks, Link: "fv-db"}, plan.Member{Set: plan.SetLinks, Link: "fl-net"},
		plan.Member{Set: plan.SetWithin, Link: "fl-net"}})
	prefix := netip.MustParsePrefix
	routed := []plan.RoutedRange{{From: prefix("172.30.0.0/24"), To: prefix("172.30.0.0/24")},
		{From: prefix("172.30.1.0/24"), To: prefix("172.30.0.0/24"), Remote: true},
		{From: prefix("fd00:30::/64"), To: prefix("fd00:30::/64")}}
	for v4, want := range map[bool][]string{
		true: {"-A FAIRLEAD -s 172.30.0.0/24 -d 172.30.0.0/24 -i fv-+ -o fv-+ -m comment --comment fairlead -j ACCEPT",
			"-A FAIRLEAD -s 172.30.1.0/24 -d 172.30.0.0/24 -o fv-+ -m comment --comment fairlead -j ACCEPT"},
		false: {"-A FAIRLEAD -s fd00:30::/64 -d fd00:30::/64 -i fv-+ -o fv-+ -m comment --comment fairlead -j ACCEPT"},
	} {
		f := plan.Firewall{V4: v4, Chain: "DOCKER-USER", Place: 1}
		chains := plan.FilterChains([]plan.Firewall{f}, []plan.Part{part}, routed)
		rules := chains[0].(plan.FilterChain).Rules
		for _, line := range want {
			if !strings.Contains(rules, line+"\n") {
				t.Errorf("v4 %t: there is no rule %q:\n%s", v4, line, rules)
			}
		}
		if n := strings.Count(rules, " -s "); n != len(want) {
			t.Errorf("v4 %t: %d rules with sources, want %d:\n%s", v4, n, len(want), rules)
		}
	}
}
