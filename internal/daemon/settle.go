package daemon

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/external"
	"fairlead/internal/daemon/sockets"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// applier saves desired states and applies them to the host. It omits what belonged to
// sandboxes that have ended.
type applier struct {
	*state
	networks  *networks
	sandboxes *sandboxes
	services  *services
	overlays  *overlays
	gateways  *gateways
}

// settle saves and applies a desired state. It omits sandboxes that ended meanwhile.
// On any other failure it restores the previous desired state, also on the host.
func (ap *applier) settle(next model.Desired) error {
	before := ap.desired
	err := ap.attemptWithoutDead(&before, &next)
	switch {
	case err == nil:
		ap.services.forgetHealth(before, next)
		return nil
	case sockets.AreUnopened(err): // the engine has changed nothing, and the step is repeated
		ap.keepProblems()
		return errors.Join(err, ap.save(before))
	}
	return ap.rollBack(before, next, err)
}

// attemptWithoutDead saves and applies a desired state. It removes sandboxes that ended meanwhile from it and from the
// state before, and leaves out networks that cannot exist on this host now.
func (ap *applier) attemptWithoutDead(before, next *model.Desired) error {
	for {
		err := ap.attempt(*next)
		if err == nil || sockets.AreUnopened(err) {
			return err
		}
		dead := ap.sandboxes.dead(*next)
		if len(dead) == 0 && !ap.networks.markUnavailable(*before, *next, err) {
			return err
		}
		ap.stopDead(dead)
		*next, *before = next.WithoutSandboxes(dead), before.WithoutSandboxes(dead)
	}
}

// cleanUp removes what belonged to sandboxes that have ended. Even if applying fails,
// they stay removed from the desired state, so a repeated step must settle it again.
func (ap *applier) cleanUp(dead map[string]bool) error {
	ap.forgetDead(dead)
	return ap.settle(ap.desired)
}

// forgetDead removes what belonged to sandboxes that have ended from the desired state.
func (ap *applier) forgetDead(dead map[string]bool) {
	for ref := range dead {
		ap.cfg.Log.Info("sandbox is gone", "sandbox", ref)
	}
	ap.stopDead(dead)
	ap.desired = ap.desired.WithoutSandboxes(dead)
}

// attempt saves and applies a desired state.
func (ap *applier) attempt(next model.Desired) error {
	if err := ap.save(next); err != nil {
		return err
	}
	return ap.applySaved()
}

// applySaved applies the desired state.
func (ap *applier) applySaved() error {
	if err := ap.services.apply(ap.desired); err != nil {
		return err
	}
	ap.known = maps.Clone(ap.problems)
	ap.sandboxes.forgetUnused()
	ap.overlays.update()
	ap.gateways.want(ap.desired)
	ap.wakeHealer()
	ap.services.needContainers(ap.desired)
	ap.changed()
	return nil
}

// rollBack restores the previous desired state and returns the error of the failed
// one. The code is Conflict if next is invalid.
func (ap *applier) rollBack(before, next model.Desired, err error) error {
	if invalid := ap.services.stateOf(next).Validate(); invalid != nil {
		err = &api.Fault{Code: api.Conflict, Err: invalid}
	}
	ap.keepProblems()
	if back := ap.attempt(before); back != nil {
		ap.later("restore the previous state", back, ap.applySaved)
		return errors.Join(err, ap.save(before))
	}
	return err
}

// keepProblems restores the problems that a failed state has deleted: what they are about is not applied. Without them,
// no state with these objects could be applied.
func (ap *applier) keepProblems() {
	for name, why := range ap.known {
		ap.problems[name] = cmp.Or(ap.problems[name], why)
	}
}

// plan returns the plan for a desired state, and whether it changes anything.
func (ap *applier) plan(next model.Desired) (string, bool, error) {
	s := ap.services.stateOf(next)
	ops, err := ap.engine.Plan(s)
	if err != nil {
		if invalid := s.Validate(); invalid != nil {
			return "", false, &api.Fault{Code: api.Conflict, Err: invalid}
		}
		return "", false, err
	}
	return plan.Text(ops), len(ops) > 0, nil
}

// adoptLimit is how long an attempt of the start waits for the proxy to open ports.
const adoptLimit = 10 * time.Second

// adopt takes over the desired state of an earlier process. It records a problem for each object that the engine
// refuses by name, and leaves the objects of others as they are. If the engine names none, adopt applies the objects one
// by one, and records a problem for each that fails. It locks mu, but not while it waits for the proxy.
func (ap *applier) adopt(w model.Desired) {
	for ap.tryAdopt(w) {
	}
	ap.mu.Lock()
	defer ap.mu.Unlock()
	ap.startLeasing()
}

// tryAdopt is one attempt of adopt. It reports whether there must be another one, which leaves out what was refused.
func (ap *applier) tryAdopt(w model.Desired) (again bool) {
	ctx, cancel := context.WithTimeout(ap.life, adoptLimit)
	defer cancel()
	err := sockets.Repeat(ctx, func() error { return ap.once(func() error { return ap.adoptAll(w) }) })
	if err == nil || ap.leaveOut(err) {
		return err != nil
	}
	ap.cfg.Log.Error("take over the attachments", "error", err)
	ap.adoptEach(ctx)
	return false
}

// leaveOut records a problem for each object of the desired state that the error of the engine names. It reports
// whether there are new ones. It locks mu.
func (ap *applier) leaveOut(refused error) (left bool) {
	ap.mu.Lock()
	defer ap.mu.Unlock()
	for _, one := range spec.Flatten(refused) {
		for _, key := range slices.Concat(problemKeys(spec.Refused(ap.desired, one))...) {
			if ap.problems[key] == "" {
				ap.problem(key, one)
				left = true
			}
		}
	}
	return left
}

// adoptAll takes over the desired state without the objects that have a problem. There is no earlier state that it
// could restore.
func (ap *applier) adoptAll(w model.Desired) error {
	ap.desired = w
	for _, a := range w.Attachments {
		if a.Sandbox != "" && a.HostInterface == "" {
			ap.sandboxes.adopt(a)
		}
		if external.Is(a) {
			ap.sandboxes.external.Await(a.Name, false)
		}
	}
	ap.sandboxes.recordExternal()
	ap.forgetDead(ap.sandboxes.dead(ap.desired))
	before, next := ap.desired, ap.desired
	return ap.attemptWithoutDead(&before, &next)
}

// notApplied is the problem of an object that adoptEach has not applied yet.
const notApplied = "it has not been applied yet"

// adoptEach applies the networks, services, attachments and publishes of the desired
// state, one kind after the other. If it cannot apply all objects of a kind, it applies
// them one by one, and records a problem for each that fails. The desired state stays
// complete meanwhile, so that a daemon that is killed here loses nothing: what is not
// applied yet has a problem.
func (ap *applier) adoptEach(ctx context.Context) {
	for _, keys := range ap.notApplied() {
		if len(keys) > 0 && ap.admit(ctx, keys...) != nil {
			ap.admitEach(ctx, keys)
		}
	}
}

// notApplied returns the keys of the objects of the desired state without a problem, by their kinds, and records that
// they are not applied yet.
func (ap *applier) notApplied() [][]string {
	ap.mu.Lock()
	defer ap.mu.Unlock()
	kinds := problemKeys(ap.desired)
	for i, keys := range kinds {
		kinds[i] = slices.DeleteFunc(keys, func(key string) bool { return ap.problems[key] != "" })
		for _, key := range kinds[i] {
			ap.problems[key] = notApplied
		}
	}
	return kinds
}

// problemKeys returns the keys of the problems that the networks, services, attachments and publishes of a state can
// have.
func problemKeys(w model.Desired) [][]string {
	var networks, services, attachments, publishes []string
	for _, n := range w.Networks {
		if n.Permanent() {
			networks = append(networks, networkProblem(n.Name))
		}
	}
	for _, v := range w.Services {
		services = append(services, serviceProblem(v.Name))
	}
	for _, a := range w.Attachments {
		attachments = append(attachments, a.Name)
	}
	for _, p := range w.Publishes {
		publishes = append(publishes, p.String())
	}
	return [][]string{networks, services, attachments, publishes}
}

// admitEach applies objects that are not applied yet, and records a problem for each
// that fails.
func (ap *applier) admitEach(ctx context.Context, keys []string) {
	for _, key := range keys {
		if err := ap.admit(ctx, key); err != nil {
			ap.mu.Lock()
			ap.problem(key, err)
			ap.mu.Unlock()
		}
	}
}

// admit applies objects that are not applied yet. If that fails, none of them is.
func (ap *applier) admit(ctx context.Context, keys ...string) error {
	return sockets.Repeat(ctx, func() error { return ap.once(func() error { return ap.tryAdmit(keys) }) })
}

// tryAdmit is one attempt of admit.
func (ap *applier) tryAdmit(keys []string) error {
	for _, key := range keys {
		delete(ap.problems, key)
	}
	err := ap.applySaved()
	if err != nil {
		for _, key := range keys {
			ap.problems[key] = notApplied
		}
	}
	return err
}
