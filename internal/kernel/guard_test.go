package kernel

import (
	"net/netip"
	"regexp"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/go-cmp/cmp"
)

// someGuard returns a guard with addresses of both families and open ports of both
// protocols.
func someGuard() plan.Guard {
	at := func(s string) []model.Frontend { return []model.Frontend{{At: netip.MustParseAddrPort(s)}} }
	return plan.Guard{Addresses: plan.FrontendAddrs(append(at("192.0.2.1:0"), at("[2001:db8::1]:0")...)),
		TCP: plan.FrontendAddrs(at("192.0.2.1:80")), UDP: plan.FrontendAddrs(at("[2001:db8::1]:53"))}
}

// TestGuardIsItsText creates the guard's table from its text and with netlink, and
// compares both.
func TestGuardIsItsText(t *testing.T) {
	h := openTestHost(t)
	g := someGuard()
	list := func() string {
		text := h.run(t, "nft", "-s", "list", "table", "inet", plan.GuardTable)
		return regexp.MustCompile(` comment "fairlead"|meta nfproto ipv[46] `).ReplaceAllString(text, "")
	}
	h.run(t, "sh", "-c", g.Add()[0])
	byText := list()
	if err := h.Set(g); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(byText, list()); diff != "" {
		t.Errorf("the table differs (-from text +from netlink):\n%s", diff)
	}
	if is, err := h.nft.ReadGuard(g); err != nil || !plan.Equal(is, g) {
		t.Errorf("readGuard returns %v, %v", is, err)
	}
	if err := h.Del(g); err != nil {
		t.Fatal(err)
	}
	if left := h.run(t, "nft", "list", "ruleset"); left != "" {
		t.Errorf("the ruleset is not empty: %s", left)
	}
}
