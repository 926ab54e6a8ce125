package admin

import (
	"context"
	"net/http"

	"fairlead/internal/api"
)

// The paths of Specs.
const (
	pathApply = "/v1/apply"
	pathState = "/v1/state"
	// pathEditable is the part of the state that `fairlead edit` changes.
	pathEditable Query[State] = "/v1/state/editable"
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
	postUpTo(mux, pathApply, maxSpec, func(ctx context.Context, r SpecRequest) (api.Result, error) {
		return d.Apply(ctx, r.Spec, r.DryRun)
	})
	mux.HandleFunc("GET "+pathState, func(w http.ResponseWriter, _ *http.Request) {
		spec, notes := d.State()
		answer(w, http.StatusOK, State{spec, notes})
	})
	pathEditable.handle(mux, func() (State, error) {
		spec, notes := d.Editable()
		return State{spec, notes}, nil
	})
}

// Apply applies the Spec to the host. In a dry run it only returns the plan and the
// changes. If the Spec has mistakes, the *api.Fault wraps api.Mistakes.
func (c *Client) Apply(ctx context.Context, spec api.Spec, dry bool) (api.Result, error) {
	return c.post(ctx, pathApply, SpecRequest{spec, dry})
}

// Editable returns the objects that commands have created.
func (c *Client) Editable(ctx context.Context) (State, error) { return pathEditable.Do(ctx, c) }

// State returns the desired state as a Spec.
func (c *Client) State(ctx context.Context) (State, error) {
	var s State
	err := c.call(ctx, http.MethodGet, pathState, nil, &s)
	return s, err
}
