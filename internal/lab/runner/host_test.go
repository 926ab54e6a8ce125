package runner

import (
	"testing"

	"fairlead/internal/plan"
)

// TestUntestedFeatures: a report says which features the kernel has and lacks, and nothing about those that it was not
// asked about.
func TestUntestedFeatures(t *testing.T) {
	h := hostFacts(Options{Facts: plan.Facts{Missing: map[plan.Feature]string{plan.FeatureVXLAN: "missing"},
		Untested: []plan.Feature{plan.FeatureEBPF}}})
	if _, said := h.Features[string(plan.FeatureEBPF)]; said || !h.Features[string(plan.FeatureNAT)] {
		t.Errorf("features of a kernel that was not asked about eBPF: %v", h.Features)
	}
	if has, said := h.Features[string(plan.FeatureVXLAN)]; has || !said || h.Memory == 0 {
		t.Errorf("features of a kernel without VXLAN: %v; memory: %d bytes", h.Features, h.Memory)
	}
	if free, err := memory("MemAvailable"); err != nil || free == 0 || free > h.Memory {
		t.Errorf("%d of %d bytes of memory are available: %v", free, h.Memory, err)
	}
}
