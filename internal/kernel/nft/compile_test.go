package nft

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// TestNamesAreNoWordsOfRules compiles the rules of services whose names are words of nft(8) or would end a word, a rule
// or a set. Each rule must look up the service's own maps.
func TestNamesAreNoWordsOfRules(t *testing.T) {
	for _, name := range []string{"drop", "a b", "a;drop", "} accept {", "@links", "x\ndrop", ". ip daddr", "map", "|",
		"(,)"} {
		s := plan.NFTService{Balanced: plan.Balanced{Service: name, Proto: model.TCP, Scheduler: model.RoundRobin,
			Persistence: time.Minute, Ring: []uint16{0},
			Backends: []plan.Backend{{At: netip.MustParseAddrPort("[2001:db8::1]:80"), Weight: 1}}}}
		maps := []*nftables.Set{realsSet(s), clientsSet(s)}
		var used []string
		for _, text := range append(s.Rules(), s.KeepRule()) {
			for _, e := range compileRule(split(text), maps) {
				switch e := e.(type) {
				case *expr.Lookup:
					used = append(used, e.SetName)
				case *expr.Dynset:
					used = append(used, e.SetName)
				case *expr.Verdict:
					t.Errorf("service %q: a rule has the verdict %v", name, e.Kind)
				}
			}
		}
		if want := []string{s.Clients(), s.Reals(), s.Clients()}; !slices.Equal(used, want) {
			t.Errorf("service %q: the rules use %q, want %q", name, used, want)
		}
	}
}
