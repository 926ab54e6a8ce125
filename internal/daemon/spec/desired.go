package spec

import (
	"fmt"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// Desired returns the desired state after the Spec is applied. If the Spec has mistakes,
// it returns a Fault with code Invalid that wraps Mistakes, and the earlier state.
func (t *Draft) Desired() (model.Desired, error) {
	if err := model.ValidName(t.spec.Set); t.spec.Set != "" && err != nil {
		t.mistake("", fmt.Errorf("set: %w", err))
	}
	t.desired = t.prune()
	for i := range t.spec.Networks {
		t.network(i)
	}
	t.pruneServices()
	for i := range t.spec.Services {
		t.service(i)
	}
	t.gateway()
	t.pruneNetworks()
	for i := range t.spec.Attachments {
		t.attachment(i)
	}
	if len(t.mistakes) == 0 {
		t.check()
	}
	if len(t.mistakes) > 0 {
		return t.before, &api.Fault{Code: api.Invalid, Err: t.mistakes}
	}
	t.noteUnchangedObjects()
	return t.desired, nil
}
