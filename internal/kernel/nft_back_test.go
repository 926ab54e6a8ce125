package kernel

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/plan"

	"github.com/google/go-cmp/cmp"
)

// TestTablesSurviveSaveAndLoad saves the rules with `nft list ruleset` and loads
// them again: every object of Fairlead's tables is unchanged.
func TestTablesSurviveSaveAndLoad(t *testing.T) {
	h := openTestHost(t)
	first := append(plan.Plan{plan.Table{}}, someElements()...)
	others := append(ipvsTableContent(), someGuard(), plan.NoTrack{Port: 4789}, plan.NoTrack{Port: 51820, Both: true})
	balanced := services(someServices()...)
	want := slices.Concat(first, balanced, others)
	if err := h.nft.Transact(plan.Diff(nil, slices.Concat(first, balanced))); err != nil {
		t.Fatal(err)
	}
	for _, o := range others {
		if err := h.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	h.run(t, "nft",
		"add element inet fairlead-services clients-persistent { 198.51.100.9 timeout 5m : 10.0.0.2 . 8080 }; "+
			"add element inet fairlead-services clients-persistent-6 { 2001:db8::9 timeout 5m : fd00::2 }; add element inet fairlead links { \"0odd.1-x\" }")
	want = append(want, plan.Member{Set: plan.SetLinks, Link: "0odd.1-x"})
	list := func() string { return h.run(t, "nft", "-s", "list", "ruleset") }
	before := list()
	file := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(file, []byte("flush ruleset\n"+h.run(t, "nft", "list", "ruleset")), 0o600); err != nil {
		t.Fatal(err)
	}
	h.run(t, "nft", "-f", file)
	h.holds(t, want)
	if diff := cmp.Diff(withoutTimes(before), withoutTimes(list())); diff != "" {
		t.Errorf("the loaded rules (+) differ from the saved ones (-):\n%s", diff)
	}
	// A transaction can delete everything again.
	if err := h.nft.Transact(plan.Diff(slices.Concat(first, balanced), nil)); err != nil {
		t.Error(err)
	}
}

// withoutTimes returns the words of a listing without the elements' remaining
// lifetimes. It sorts them, because the order of elements has no meaning.
func withoutTimes(list string) []string {
	var words []string
	for line := range strings.Lines(list) {
		elements, _ := strings.CutPrefix(strings.TrimSpace(line), "elements = {")
		for part := range strings.SplitSeq(elements, ",") {
			part, _, _ = strings.Cut(strings.TrimSuffix(strings.TrimSpace(part), " }"), " expires")
			words = append(words, part)
		}
	}
	slices.Sort(words)
	return words
}
