package applier

import (
	"context"
	"slices"
	"time"

	"fairlead/internal/daemon/external"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/daemon/state"
	"fairlead/internal/model"
)

// adoptLimit is how long an attempt of the start waits for the proxy to open ports.
const adoptLimit = 10 * time.Second

// Adopt takes over the desired state of an earlier process. It records a problem for each object that the engine
// refuses by name, and leaves the objects of others as they are. If the engine names none, Adopt applies the objects one
// by one, and records a problem for each that fails. It locks the mutex of the state, but not while it waits for the
// proxy.
func (ap *Applier) Adopt(w model.Desired) {
	for ap.tryAdopt(w) {
	}
	ap.State.Lock()
	defer ap.State.Unlock()
	ap.Steps.StartLeasing()
}

// tryAdopt is one attempt of Adopt. It reports whether there must be another one, which leaves out what was refused.
func (ap *Applier) tryAdopt(w model.Desired) (again bool) {
	ctx, cancel := context.WithTimeout(ap.State.Life, adoptLimit)
	defer cancel()
	err := ap.Steps.Repeat(ctx, func() error { return ap.adoptAll(w) })
	if err == nil || ap.leaveOut(err) {
		return err != nil
	}
	ap.State.Log.Error("take over the attachments", "error", err)
	ap.adoptEach(ctx)
	return false
}

// leaveOut records a problem for each object of the desired state that the error of the engine names. It reports
// whether there are new ones. It locks the mutex of the state.
func (ap *Applier) leaveOut(refused error) (left bool) {
	ap.State.Lock()
	defer ap.State.Unlock()
	for _, one := range spec.Flatten(refused) {
		for _, key := range slices.Concat(problemKeys(spec.Refused(ap.State.Desired(), one))...) {
			if ap.State.Problems[key] == "" {
				ap.State.Fail(key, one)
				left = true
			}
		}
	}
	return left
}

// adoptAll takes over the desired state without the objects that have a problem. There is no earlier state that it
// could restore.
func (ap *Applier) adoptAll(w model.Desired) error {
	ap.State.Assume(w)
	for _, a := range w.Attachments {
		if a.Sandbox != "" && a.HostInterface == "" {
			ap.Sandboxes.Adopt(a)
		}
		if external.Is(a) {
			ap.Sandboxes.External.Await(a.Name, false)
		}
	}
	ap.Sandboxes.RecordExternal()
	ap.forgetDead(ap.Sandboxes.Dead(ap.State.Desired()))
	before, next := ap.State.Desired(), ap.State.Desired()
	return ap.attemptWithoutDead(&before, &next)
}

// notApplied is the problem of an object that adoptEach has not applied yet.
const notApplied = "it has not been applied yet"

// adoptEach applies the networks, services, attachments and publishes of the desired
// state, one kind after the other. If it cannot apply all objects of a kind, it applies
// them one by one, and records a problem for each that fails. The desired state stays
// complete meanwhile, so that a daemon that is killed here loses nothing: what is not
// applied yet has a problem.
func (ap *Applier) adoptEach(ctx context.Context) {
	for _, keys := range ap.notApplied() {
		if len(keys) > 0 && ap.admit(ctx, keys...) != nil {
			ap.admitEach(ctx, keys)
		}
	}
}

// notApplied returns the keys of the objects of the desired state without a problem, by their kinds, and records that
// they are not applied yet. It locks the mutex of the state.
func (ap *Applier) notApplied() [][]string {
	ap.State.Lock()
	defer ap.State.Unlock()
	kinds := problemKeys(ap.State.Desired())
	for i, keys := range kinds {
		kinds[i] = slices.DeleteFunc(keys, func(key string) bool { return ap.State.Problems[key] != "" })
		for _, key := range kinds[i] {
			ap.State.Problems[key] = notApplied
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
			networks = append(networks, state.OfNetwork(n.Name))
		}
	}
	for _, v := range w.Services {
		services = append(services, state.OfService(v.Name))
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
// that fails. It locks the mutex of the state.
func (ap *Applier) admitEach(ctx context.Context, keys []string) {
	for _, key := range keys {
		if err := ap.admit(ctx, key); err != nil {
			ap.State.Lock()
			ap.State.Fail(key, err)
			ap.State.Unlock()
		}
	}
}

// admit applies objects that are not applied yet. If that fails, none of them is. It locks the mutex of the state.
func (ap *Applier) admit(ctx context.Context, keys ...string) error {
	return ap.Steps.Repeat(ctx, func() error { return ap.tryAdmit(keys) })
}

// tryAdmit is one attempt of admit.
func (ap *Applier) tryAdmit(keys []string) error {
	for _, key := range keys {
		delete(ap.State.Problems, key)
	}
	err := ap.applySaved()
	if err != nil {
		for _, key := range keys {
			ap.State.Problems[key] = notApplied
		}
	}
	return err
}
