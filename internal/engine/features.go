package engine

import (
	"maps"
	"slices"

	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
)

// Prepare loads the programs for services if the host has none yet, or finds out why the kernel lacks them. The kernel
// verifies programs for some seconds then, so a caller prepares before it locks what others need. The caller calls done
// after it has applied the services. fresh are those that the host does not have yet.
func (e *Engine) Prepare(services, fresh []model.VirtualService) (done func() error) {
	done = func() error { return nil }
	if !slices.ContainsFunc(services, mayNeedServices) || paths.Missing(e.cfg.Facts, ofServices) != "" {
		return done
	}
	if slices.ContainsFunc(fresh, mayNeedServices) {
		done, _ = e.cfg.Inspector.LoadServices() // the step that needs them returns the error
	}
	_, _ = e.cfg.Inspector.Lacks(ofServices...)
	return done
}

// ofServices are the features without which there are no services of the eBPF data plane.
var ofServices = []plan.Feature{plan.FeatureEBPF, plan.FeatureCgroupHooks, plan.FeatureServices}

// mayNeedServices reports whether a service may use the programs for services.
func mayNeedServices(v model.VirtualService) bool {
	p, named := paths.Plane(v.Plane)
	return v.Balances() && (!named || slices.Contains(p.Needs(v), plan.FeatureServices))
}

// missing returns the features that the host lacks, including those of eBPF programs that the state may need.
func (e *Engine) missing(g *graph) (map[plan.Feature]string, error) {
	missing := e.cfg.Facts.Missing
	lacks, err := e.cfg.Inspector.Lacks(slices.DeleteFunc(g.mayNeed(e.cfg.Facts), func(f plan.Feature) bool {
		return missing[f] != ""
	})...)
	if err != nil || len(lacks) == 0 {
		return missing, err
	}
	maps.Copy(lacks, missing)
	return lacks, nil
}

// mayNeed returns the features that the state's networks, publishes and services need, whichever mode and data plane is
// chosen.
func (g *graph) mayNeed(facts plan.Facts) (all []plan.Feature) {
	named, auto := map[model.Via]bool{}, map[model.Driver]bool{}
	for _, p := range g.publishes {
		if named[p.Via] = true; p.Via == model.ViaAuto && p.to != nil {
			auto[p.to.network.Driver] = true
		}
	}
	drivers := slices.Collect(maps.Keys(auto))
	for _, w := range paths.Modes() {
		if named[w.Name()] || slices.ContainsFunc(drivers, func(d model.Driver) bool { return w.Promises(d) != nil }) {
			all = append(all, w.Needs()...)
		}
	}
	if slices.ContainsFunc(g.state.Networks, func(n model.Network) bool { return n.Outbound == model.OutboundEBPF }) {
		all = append(all, plan.FeatureEBPF)
	}
	if slices.ContainsFunc(g.state.Services, mayNeedServices) && paths.Missing(facts, ofServices) == "" {
		all = append(all, ofServices...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
