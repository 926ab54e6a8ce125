package api

import (
	"encoding/json"
	"testing"
	"time"
)

// TestOutboundChoice: users read and scripts get what was chosen, why, and until when.
func TestOutboundChoice(t *testing.T) {
	until := time.Date(2026, 11, 28, 11, 3, 4, 0, time.Local)
	for _, c := range []struct {
		OutboundChoice
		text string
		json string
	}{
		{OutboundChoice{Chosen: "ebpf"}, "outbound ebpf: no rule of the host would decide about the connections",
			`{"chosen":"ebpf"}`},
		{OutboundChoice{Chosen: "nft", Why: "a rule drops"}, "outbound nft: a rule drops",
			`{"chosen":"nft","why":"a rule drops"}`},
		{OutboundChoice{Chosen: "nft", Why: "a rule drops", Until: until},
			"outbound nft: no rule decides now; ebpf is chosen at 2026-11-28 11:03:04 if none does until then; " +
				"before: a rule drops", `{"chosen":"nft","why":"a rule drops","until":"` + until.Format(time.RFC3339) + `"}`},
		{OutboundChoice{Chosen: "nft", Why: "a rule drops", Unapplied: "no such device"},
			"outbound nft: a rule drops; the host has not followed, so connections may still bypass its rules: no such device",
			`{"chosen":"nft","why":"a rule drops","unapplied":"no such device"}`},
	} {
		if got := c.String(); got != c.text {
			t.Errorf("%q, want %q", got, c.text)
		}
		if got, err := json.Marshal(c.OutboundChoice); err != nil || string(got) != c.json {
			t.Errorf("%s, %v, want %s", got, err, c.json)
		}
	}
}
