package kernel

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"fairlead/internal/cgroup"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/plan"
)

// ofPrograms are the features of eBPF programs. To verify the programs takes the kernel longer than all other probes.
var ofPrograms = []plan.Feature{plan.FeatureEBPF, plan.FeatureCgroupHooks, plan.FeatureServices}

// ProbeWithoutPrograms does what Probe does, but assumes that the kernel accepts all eBPF programs. Host.Lacks tests
// that when a state needs them.
func ProbeWithoutPrograms() (plan.Facts, error) {
	all := slices.Collect(maps.Keys(probes))
	return Probe(slices.DeleteFunc(all, func(f plan.Feature) bool { return slices.Contains(ofPrograms, f) })...)
}

// ProbeFor does what Probe does, but verifies eBPF programs only if some of the features that are needed are ones of
// programs.
func ProbeFor(needed []plan.Feature) (plan.Facts, error) {
	if slices.ContainsFunc(needed, func(f plan.Feature) bool { return slices.Contains(ofPrograms, f) }) {
		return Probe()
	}
	return ProbeWithoutPrograms()
}

// verdicts are the features of eBPF programs that were tested: why the kernel lacks each, empty if it has it. The kernel
// does not change while the process runs.
type verdicts struct {
	// testing is locked while features are tested, which takes the kernel seconds. mu guards of.
	testing, mu sync.Mutex
	of          map[plan.Feature]string
}

// untested returns those of some features that are ones of eBPF programs without a verdict.
func (v *verdicts) untested(features []plan.Feature) (all []plan.Feature) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range features {
		if _, known := v.of[f]; !known && slices.Contains(ofPrograms, f) {
			all = append(all, f)
		}
	}
	return all
}

// add adds the verdicts of features: missing has those that the kernel lacks.
func (v *verdicts) add(features []plan.Feature, missing map[plan.Feature]string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range features {
		v.of[f] = missing[f]
	}
}

// lacks returns which of some features are missing, each with the reason.
func (v *verdicts) lacks(features []plan.Feature) map[plan.Feature]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	lacks := map[plan.Feature]string{}
	for _, f := range features {
		if why := v.of[f]; why != "" {
			lacks[f] = why
		}
	}
	return lacks
}

// Lacks returns which of the features of eBPF programs the kernel lacks, each with the reason. Other features are not
// tested. It loads the programs that a state with the features needs, so that the kernel verifies them only once. It
// probes the kernel for the reasons only if that fails. It is safe for concurrent use, and waits for the test of another
// caller only if a feature has no verdict yet.
func (h *Host) Lacks(features ...plan.Feature) (map[plan.Feature]string, error) {
	if len(h.programs.untested(features)) > 0 {
		h.programs.testing.Lock()
		defer h.programs.testing.Unlock()
		if err := h.test(h.programs.untested(features)); err != nil {
			return nil, err
		}
	}
	return h.programs.lacks(features), nil
}

// test adds the verdicts of features.
func (h *Host) test(features []plan.Feature) error {
	if len(features) == 0 {
		return nil
	}
	var facts plan.Facts
	if h.use(features) != nil {
		var err error
		if facts, err = Probe(features...); err != nil {
			return err
		}
	}
	h.programs.add(features, facts.Missing)
	return nil
}

// use loads the programs of the features and uses them. Those with support for services do all that the others do, but
// are attached to no cgroup.
func (h *Host) use(features []plan.Feature) error {
	sockets := slices.Contains(features, plan.FeatureCgroupHooks)
	if sockets {
		if _, err := cgroup.Root(); err != nil {
			return err
		}
	}
	if slices.Contains(features, plan.FeatureServices) {
		facts, err := Probe(plan.FeatureServices)
		if why := facts.Missing[plan.FeatureServices]; why != "" {
			err = errors.New(why)
		}
		return err
	}
	return h.ebpf.Preload(slices.Contains(features, plan.FeatureEBPF), sockets)
}

// LoadServices loads what the first virtual service needs; see datapath.LoadServices. If the kernel accepts that, the
// host lacks no feature of eBPF programs.
func (h *Host) LoadServices() (drop func() error, err error) {
	drop, err = datapath.LoadServices(h.ebpf)
	if _, none := cgroup.Root(); err == nil && none == nil {
		h.programs.add(ofPrograms, nil)
	}
	return drop, err
}
