package nft

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/kernel/kerneltest"
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

// TestTraceAddressWithZone traces packets of an address with a zone, which can be any text and is in no packet.
func TestTraceAddressWithZone(t *testing.T) {
	h := openTest(t)
	for _, zone := range []string{"eth0", "a/b", "a;b", "a drop", "}"} {
		at := netip.AddrPortFrom(netip.MustParseAddr("fd00::5%"+zone), 0)
		tracer, err := h.Trace([]TraceMatch{{Proto: model.TCP, Src: at}})
		if err != nil {
			t.Fatal(err)
		}
		got := kerneltest.Run(t, h.ns, "nft", "list", "ruleset")
		if err := tracer.Close(); err != nil {
			t.Error(err)
		}
		if n := strings.Count(got, "meta l4proto tcp ip6 saddr fd00::5 meta nftrace set 1"); n != 2 {
			t.Errorf("zone %q: %d rules match the address:\n%s", zone, n, got)
		}
	}
}

// TestExcludedProtocol compiles a rule that excludes a protocol and compares its port: the rule still has to match the
// protocol before it loads the port.
func TestExcludedProtocol(t *testing.T) {
	rule := compileRule(split("meta l4proto != tcp tcp dport 1 drop"), nil)
	var matches int
	for _, e := range rule {
		if m, ok := e.(*expr.Meta); ok && m.Key == expr.MetaKeyL4PROTO {
			matches++
		}
	}
	if matches != 2 {
		t.Errorf("the rule has %d matches of the protocol, want 2", matches)
	}
}
