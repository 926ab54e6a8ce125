package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// TestHelpersAreInOldKernels checks that Linux 5.14, from which the programs promise to run, has each helper that they
// call: the helpers have numbers in the order in which the kernel got them. The verifier removes the call of
// bpf_set_retval on kernels without it (have_retval).
func TestHelpersAreInOldKernels(t *testing.T) {
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){
		"fairlead": LoadFairlead, "fence": LoadFence,
		"overlay": LoadOverlay} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		helpers := map[asm.BuiltinFunc]string{}
		for _, p := range spec.Programs {
			for _, i := range p.Instructions {
				if i.IsBuiltinCall() {
					helpers[asm.BuiltinFunc(i.Constant)] = p.Name
				}
			}
		}
		if len(helpers) == 0 {
			t.Errorf("%s calls no helper", name)
		}
		for f, program := range helpers {
			if f > asm.FnSysClose && f != asm.FnSetRetval { // the last one of Linux 5.14
				t.Errorf("%s: program %s calls %v, which Linux 5.14 lacks", name, program, f)
			}
		}
	}
}
