package kernel

import (
	"strings"
	"testing"

	"fairlead/internal/plan"
)

// TestLinkWithoutAliasIsReplaced makes the link that a Fairlead leaves which was
// killed before it set the alias. The next Fairlead recognizes it by its group:
// it replaces it by the wanted link, or removes it.
func TestLinkWithoutAliasIsReplaced(t *testing.T) {
	h := openTestHost(t)
	h.run(t, "ip", "link", "add", "fl-net", "group", "1717660018", "type", "bridge")
	want := plan.Link{Name: "fl-net", Kind: plan.Bridge, MTU: 1400, Owner: "net"}
	if err := h.Set(want); err != nil {
		t.Fatal(err)
	}
	if out := h.run(t, "ip", "-d", "link", "show", "fl-net"); !strings.Contains(out, "alias fairlead:net") ||
		!strings.Contains(out, "mtu 1400") {
		t.Errorf("the link is\n%s", out)
	}
	if err := h.Del(want); err != nil {
		t.Fatal(err)
	}
	h.run(t, "ip", "link", "add", "fl-net", "group", "1717660018", "type", "bridge")
	have, err := h.Observe(nil, nil)
	if err != nil || len(have) != 1 {
		t.Fatalf("observed %v, %v", have, err)
	}
	h.run(t, "ip", "link", "add", "fl-other", "type", "bridge") // not Fairlead's
	if err := h.Set(plan.Link{Name: "fl-other", Kind: plan.Bridge, MTU: 1400, Owner: "other"}); err == nil {
		t.Error("a link that is not Fairlead's is taken over")
	}
}
