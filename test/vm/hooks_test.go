package vm

import (
	"slices"
	"strings"
	"testing"
)

// TestLegacyFrames writes tables of legacy ebtables, which the host's kernel may lack, and reads them.
func TestLegacyFrames(t *testing.T) {
	modules := []string{"ebtables", "ebtable_broute", "ebtable_filter", "ebtable_nat"}
	o := forNewer.run(t, slices.Concat(networking, modules),
		[]string{"ip", "sh"}, Task{"fairlead/internal/kernel/nft", []string{"-test.run=^TestLegacyFrames$"}})
	if o.Err != nil || strings.Contains(o.Said, "no_ebtables") {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
}

// TestHookPrograms attaches eBPF programs at hooks of netfilter.
func TestHookPrograms(t *testing.T) {
	o := forNewer.run(t, networking, []string{"ip", "sh"}, Task{Package: "fairlead/test/vm/testdata/hooks"})
	if o.Err != nil {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
}
