package dashboard_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
)

// TestUnappliedOutboundIsWrong: a network whose host has not followed the choice of outbound auto is marked as wrong, on
// the page of networks and on the first page. Its connections may bypass the host's rules.
func TestUnappliedOutboundIsWrong(t *testing.T) {
	network := func(name string) model.Network {
		return model.Network{Name: name, Driver: model.DriverBridge, Outbound: model.OutboundAuto,
			Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.1.0.0/24")}}}
	}
	all := values(time.Now())
	all["/v1/networks"] = admin.Networks{Networks: []model.Network{network("good"), network("stuck")},
		Outbound: map[string]api.OutboundChoice{"good": {Chosen: "nft", Why: "a rule drops"},
			"stuck": {Chosen: "nft", Why: "a rule drops", Unapplied: "no such device"}}}
	at := served(t, newFake(t, all), nil)
	const text = "a rule drops; the host has not followed, so connections may still bypass its rules: no such device"
	_, page := get(t, at.URL+"/paths")
	for _, want := range []string{`<span class="ok">`, `<span class="bad">`, "failed; outbound nft: " + text,
		"available; outbound nft: a rule drops<"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of networks does not contain %q", want)
		}
	}
	if _, first := get(t, at.URL+"/"); !strings.Contains(first, text) || strings.Contains(first, "good") {
		t.Errorf("the first page does not name the network, or names another one")
	}
}
