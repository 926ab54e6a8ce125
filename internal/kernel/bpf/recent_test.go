package bpf

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
)

// TestCopiesAreIndependent changes a specification: the next one is as compiled.
func TestCopiesAreIndependent(t *testing.T) {
	changed, err := Fairlead()
	if err != nil {
		t.Fatal(err)
	}
	changed.Maps[FairleadMapFlMappings].MaxEntries = 1
	if err := changed.Variables[FairleadVarHostNetns].Set(uint64(7)); err != nil {
		t.Fatal(err)
	}
	changed.Programs[FairleadProgFlBind4].Instructions[0].Constant = 7
	clear(changed.Programs)
	next, err := Fairlead()
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := LoadFairlead()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range compiled.Programs {
		got := next.Programs[name]
		if got == nil || text(got) != text(want) {
			t.Errorf("program %s is missing or has changed", name)
		}
	}
	for name, want := range compiled.Maps {
		if got := next.Maps[name]; got == nil || got.MaxEntries != want.MaxEntries {
			t.Errorf("map %s is %v, want %v", name, got, want)
		}
	}
	for name, want := range compiled.Variables {
		if got := next.Variables[name]; got == nil || !slices.Equal(got.Value, want.Value) {
			t.Errorf("variable %s is %v, want %v", name, got, want)
		}
	}
}

// text returns the instructions of a program.
func text(p *ebpf.ProgramSpec) string { return fmt.Sprint(p.Instructions) }
