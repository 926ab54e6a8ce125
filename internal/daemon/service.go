package daemon

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/model"
)

// SetService creates or changes a virtual service. A repeated request changes nothing.
// Returns a Fault with code Invalid if the service has a mistake. The code is Conflict
// if the service has another origin, exists although Create is set, or differs from
// Was: the caller can then read it again and repeat the request.
func (d *Daemon) SetService(r api.ServiceRequest) (api.Result, error) {
	defer d.prepare([]model.VirtualService{r.VirtualService})()
	return stepFor(d.life, d.state, func() (api.Result, error) { return setService(d, r) })
}

// setService is one attempt of SetService.
func setService(d *Daemon, r api.ServiceRequest) (api.Result, error) {
	v := r.VirtualService
	have, known := d.desired.Service(v.Name)
	if err := v.Validate(); err != nil {
		return api.Result{}, &api.Fault{Code: api.Invalid, Err: fmt.Errorf("service %s: %w", v.Name, err)}
	}
	switch {
	case known && have.Origin != v.Origin:
		if v.Origin = have.Origin; have.Equal(v) {
			return api.Result{Services: d.services.viewServices(v.Name)}, nil
		}
		return api.Result{}, spec.OtherOrigin("service "+v.Name, have.Origin)
	case known && have.Equal(v) && d.problems[serviceProblem(v.Name)] == "":
		return api.Result{Services: d.services.viewServices(v.Name)}, nil
	case known && r.Create:
		return api.Result{}, api.Faultf(api.Conflict,
			"service %s already exists with different settings: change it with `fairlead service set`, or choose another name", v.Name)
	case r.Was != nil && (!known || !have.Equal(*r.Was)):
		return api.Result{}, api.Faultf(api.Conflict,
			"service %s was changed meanwhile: read it again and repeat the request", v.Name)
	}
	return d.changeService(v, r.DryRun)
}

// changeService applies a validated service.
func (d *Daemon) changeService(v model.VirtualService, dry bool) (api.Result, error) {
	next := d.desired.WithService(v)
	delete(d.problems, serviceProblem(v.Name))
	if dry {
		text, changed, err := d.applier.plan(next)
		d.applier.keepProblems()
		return api.Result{Plan: text, Changed: changed}, err
	}
	if err := d.applier.settle(next); err != nil {
		if !strings.HasPrefix(err.Error(), "service "+v.Name+": ") { // such an error needs no prefix
			err = fmt.Errorf("set service %s: %w", v.Name, err)
		}
		return api.Result{}, err
	}
	d.cfg.Log.Info("service", "name", v.Name, "at", v.String())
	return api.Result{Services: d.services.viewServices(v.Name), Changed: true}, nil
}

// prepare loads what new services need, once if the host refuses them. It locks mu, but not while it loads. The caller
// calls done after it has applied the services.
func (s *state) prepare(services []model.VirtualService) (done func()) {
	s.mu.Lock()
	fresh := slices.DeleteFunc(slices.Clone(services), func(v model.VirtualService) bool {
		_, known := s.desired.Service(v.Name)
		return known || slices.ContainsFunc(s.prepared, v.Equal)
	})
	s.prepared = services
	s.mu.Unlock()
	drop := s.engine.Prepare(services, fresh)
	return func() { s.warn("unload what no service has used", drop()) }
}

// RemoveService removes a virtual service and ends its flows. If there is no such
// service, it returns a note and no error. Returns a Fault with code Conflict if the
// service was not created by a command.
func (d *Daemon) RemoveService(name string, dry bool) (api.Result, error) {
	return stepFor(d.life, d.state, func() (api.Result, error) { return removeService(d, name, dry) })
}

// removeService is one attempt of RemoveService.
func removeService(d *Daemon, name string, dry bool) (api.Result, error) {
	have, known := d.desired.Service(name)
	if !known {
		return api.Result{Notes: []string{fmt.Sprintf("there is no service %s: nothing to do", name)}}, nil
	}
	if have.Origin != model.FromCommand {
		return api.Result{}, spec.OtherOrigin("service "+name, have.Origin)
	}
	next := d.desired
	next.Services = slices.DeleteFunc(slices.Clone(next.Services),
		func(v model.VirtualService) bool { return v.Name == name })
	if dry {
		text, changed, err := d.applier.plan(next)
		return api.Result{Plan: text, Changed: changed}, err
	}
	delete(d.problems, serviceProblem(name))
	if err := d.applier.settle(next); err != nil {
		return api.Result{}, fmt.Errorf("remove service %s: %w", name, err)
	}
	d.cfg.Log.Info("service removed", "name", name)
	return api.Result{Changed: true}, nil
}

// Services returns the virtual services, sorted by name.
func (d *Daemon) Services() []api.ServiceView {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.services.flows.read()
	return d.services.viewServices()
}

// Service returns the virtual service with that name. Returns a Fault with code
// NotFound if there is none.
func (d *Daemon) Service(name string) (api.ServiceView, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.desired.Service(name); !known {
		return api.ServiceView{}, noService(name)
	}
	d.services.flows.read()
	v := d.services.viewServices(name)[0]
	if v.PlaneInUse.Traits().AtLinks && v.Forward != "" && v.Forward != model.ForwardNAT {
		var err error
		v.FastPath, _, err = d.cfg.Inspector.EBPF().FastPath()
		d.warn("read the fast path", err)
	}
	return v, nil
}

func noService(name string) error {
	return api.Faultf(api.NotFound,
		"there is no service %q: create it with `fairlead service add`, or list them with `fairlead service ls`", name)
}

func byServiceName(a, b api.ServiceView) int { return strings.Compare(a.Name, b.Name) }
