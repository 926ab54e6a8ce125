package kernel

import (
	"strings"
	"testing"

	"fairlead/internal/plan"
)

// TestALinkThatWeWereKilledOver is ours, though it has no alias yet: the next
// of us makes the wanted link in its place, or takes it away.
func TestALinkThatWeWereKilledOver(t *testing.T) {
	h := openTestHost(t)
	h.run(t, "ip", "link", "add", "fl-net", "group", "1717660018", "type", "bridge")
	want := plan.Link{Name: "fl-net", Kind: plan.Bridge, MTU: 1400, Owner: "net"}
	if err := h.Set(want); err != nil {
		t.Fatal(err)
	}
	if out := h.run(t, "ip", "-d", "link", "show", "fl-net"); !strings.Contains(out, "alias fairlead:net") || !strings.Contains(out, "mtu 1400") {
		t.Errorf("it is\n%s", out)
	}
	if err := h.Del(want); err != nil {
		t.Fatal(err)
	}
	h.run(t, "ip", "link", "add", "fl-net", "group", "1717660018", "type", "bridge")
	have, err := h.Observe(nil, nil)
	if err != nil || len(have) != 1 {
		t.Fatalf("seen are %v, %v", have, err)
	}
	h.run(t, "ip", "link", "add", "fl-other", "type", "bridge") // somebody else's
	if err := h.Set(plan.Link{Name: "fl-other", Kind: plan.Bridge, MTU: 1400, Owner: "other"}); err == nil {
		t.Error("somebody else's link is taken")
	}
}
