package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
)

// The requests for Specs. In a dry run, Apply only returns the plan and the changes. If the Spec has mistakes, its
// *api.Fault wraps api.Mistakes.
const (
	Apply     Call[SpecRequest, api.Result] = "/v1/apply"
	ReadState Query[State]                  = "/v1/state"
	// ReadEditable asks for the objects that commands have created, which `fairlead edit` changes.
	ReadEditable Query[State] = "/v1/state/editable"
)

// SpecCalls are the calls of the daemon for the desired state as a Spec.
type SpecCalls interface {
	Apply(ctx context.Context, spec api.Spec, dry bool) (api.Result, error)
	State() (api.Spec, []string)
	Editable() (api.Spec, []string)
}

// SpecRequest applies the declarations of a set of files.
type SpecRequest struct {
	api.Spec
	DryRun bool `json:"dryRun,omitempty"`
}

// State is the desired state as a Spec.
type State struct {
	api.Spec
	// Notes describe what a Spec cannot express.
	Notes []string `json:"notes,omitempty"`
}

// specHandlers registers the handlers of Specs.
func specHandlers(mux *http.ServeMux, d SpecCalls) {
	postUpTo(mux, string(Apply), maxSpec, func(ctx context.Context, r SpecRequest) (api.Result, error) {
		return d.Apply(ctx, r.Spec, r.DryRun)
	})
	ReadState.handle(mux, func() (State, error) {
		spec, notes := d.State()
		return State{spec, notes}, nil
	})
	ReadEditable.handle(mux, func() (State, error) {
		spec, notes := d.Editable()
		return State{spec, notes}, nil
	})
}
