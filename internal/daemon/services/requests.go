package services

import (
	"fmt"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/daemon/state"
	"fairlead/internal/daemon/step"
	"fairlead/internal/model"
)

// Requests handles the requests of users for services and single real servers. Its exported methods lock the mutex of
// the state, and the others expect that it is locked.
type Requests struct {
	state    *state.State
	steps    *step.Runner
	services *Services
	// settle saves and applies a desired state; plan returns the result of a dry run.
	settle func(model.Desired) error
	plan   func(model.Desired) (api.Result, error)
}

// NewRequests returns Requests. settle saves and applies a desired state, and plan returns the result of a dry run.
func NewRequests(all *Services, settle func(model.Desired) error,
	plan func(model.Desired) (api.Result, error)) *Requests {
	return &Requests{state: all.state, steps: all.cfg.Steps, services: all, settle: settle, plan: plan}
}

// SetService creates or changes a virtual service. A repeated request changes nothing.
// Returns a Fault with code Invalid if the service has a mistake. The code is Conflict
// if the service has another origin, exists although Create is set, or differs from
// Was: the caller can then read it again and repeat the request.
func (rs *Requests) SetService(r api.ServiceRequest) (api.Result, error) {
	defer rs.services.Prepare([]model.VirtualService{r.VirtualService})()
	return step.For(rs.state.Life, rs.steps, func() (api.Result, error) { return rs.setService(r) })
}

// setService is one attempt of SetService.
func (rs *Requests) setService(r api.ServiceRequest) (api.Result, error) {
	v := r.VirtualService
	have, known := rs.state.Desired().Service(v.Name)
	if err := v.Validate(); err != nil {
		return api.Result{}, &api.Fault{Code: api.Invalid, Err: fmt.Errorf("service %s: %w", v.Name, err)}
	}
	switch {
	case known && have.Origin != v.Origin:
		if v.Origin = have.Origin; have.Equal(v) {
			return api.Result{Services: rs.services.views(v.Name)}, nil
		}
		return api.Result{}, spec.OtherOrigin("service "+v.Name, have.Origin)
	case known && have.Equal(v) && rs.state.Problems[state.OfService(v.Name)] == "":
		return api.Result{Services: rs.services.views(v.Name)}, nil
	case known && r.Create:
		return api.Result{}, api.Faultf(api.Conflict,
			"service %s already exists with different settings: change it with `fairlead service set`, or choose another name", v.Name)
	case r.Was != nil && (!known || !have.Equal(*r.Was)):
		return api.Result{}, api.Faultf(api.Conflict,
			"service %s was changed meanwhile: read it again and repeat the request", v.Name)
	}
	return rs.changeService(v, r.DryRun)
}

// changeService applies a validated service.
func (rs *Requests) changeService(v model.VirtualService, dry bool) (api.Result, error) {
	next := rs.state.Desired().WithService(v)
	delete(rs.state.Problems, state.OfService(v.Name))
	if dry {
		defer rs.state.KeepProblems()
		return rs.plan(next)
	}
	if err := rs.settle(next); err != nil {
		if !strings.HasPrefix(err.Error(), "service "+v.Name+": ") { // such an error needs no prefix
			err = fmt.Errorf("set service %s: %w", v.Name, err)
		}
		return api.Result{}, err
	}
	rs.state.Log.Info("service", "name", v.Name, "at", v.String())
	return api.Result{Services: rs.services.views(v.Name), Changed: true}, nil
}

// RemoveService removes a virtual service and ends its flows. If there is no such
// service, it returns a note and no error. Returns a Fault with code Conflict if the
// service was not created by a command.
func (rs *Requests) RemoveService(name string, dry bool) (api.Result, error) {
	return step.For(rs.state.Life, rs.steps, func() (api.Result, error) { return rs.removeService(name, dry) })
}

// removeService is one attempt of RemoveService.
func (rs *Requests) removeService(name string, dry bool) (api.Result, error) {
	have, known := rs.state.Desired().Service(name)
	if !known {
		return api.Result{Notes: []string{fmt.Sprintf("there is no service %s: nothing to do", name)}}, nil
	}
	if have.Origin != model.FromCommand {
		return api.Result{}, spec.OtherOrigin("service "+name, have.Origin)
	}
	next := rs.state.Desired().WithoutService(name)
	if dry {
		return rs.plan(next)
	}
	delete(rs.state.Problems, state.OfService(name))
	if err := rs.settle(next); err != nil {
		return api.Result{}, fmt.Errorf("remove service %s: %w", name, err)
	}
	rs.state.Log.Info("service removed", "name", name)
	return api.Result{Changed: true}, nil
}

// Services returns the virtual services, sorted by name.
func (rs *Requests) Services() []api.ServiceView {
	rs.state.Lock()
	defer rs.state.Unlock()
	rs.services.flows.read()
	return rs.services.views()
}

// Service returns the virtual service with that name. Returns a Fault with code
// NotFound if there is none.
func (rs *Requests) Service(name string) (api.ServiceView, error) {
	rs.state.Lock()
	defer rs.state.Unlock()
	if _, known := rs.state.Desired().Service(name); !known {
		return api.ServiceView{}, absent(name)
	}
	rs.services.flows.read()
	v := rs.services.views(name)[0]
	if v.PlaneInUse.Traits().AtLinks && v.Forward != "" && v.Forward != model.ForwardNAT {
		var err error
		v.FastPath, _, err = rs.services.cfg.Inspector.EBPF().FastPath()
		rs.state.Warn("read the fast path", err)
	}
	return v, nil
}
