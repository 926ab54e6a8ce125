package services

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/pool"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/daemon/state"
	"fairlead/internal/daemon/step"
	"fairlead/internal/escape"
	"fairlead/internal/model"
)

// ChangeReal drains, enables or removes a real server. Returns a Fault with code
// NotFound if the service or the real server does not exist, Conflict if the real
// server is leaving or the service is not applied, and Invalid if the request has a
// mistake or several real servers have the name.
func (rs *Requests) ChangeReal(r api.RealRequest) (api.Result, error) {
	return step.For(rs.state.Life, rs.steps, func() (api.Result, error) { return rs.change(r) })
}

// change is one attempt of ChangeReal.
func (rs *Requests) change(r api.RealRequest) (api.Result, error) {
	v, known := rs.state.Desired().Service(r.Service)
	if !known {
		return api.Result{}, absent(r.Service)
	}
	if r.Real == "" { // e.g. an unset variable of a script
		return api.Result{}, api.Faultf(api.Invalid,
			"%s a real server of service %s: its name or address is missing: `fairlead service show %s` lists them",
			r.Do, r.Service, escape.Shell(r.Service))
	}
	if r.Deadline < 0 {
		return api.Result{}, api.Faultf(api.Invalid,
			"drain %s of service %s: deadline %s: want a time from now", r.Real, r.Service, r.Deadline)
	}
	if r.Do == api.RemoveReal {
		return rs.remove(v, r)
	}
	m, err := rs.find(r.Service, r.Real)
	if err != nil {
		return api.Result{}, err
	}
	if m.Leaving {
		return api.Result{}, api.Faultf(api.Conflict,
			"%s is leaving service %s: add it again with `fairlead service set %s --real %s`", m.Text(), v.Name,
			escape.Shell(v.Name), m.Text())
	}
	switch r.Do {
	case api.DrainReal:
		return rs.drain(v, m, r)
	case api.EnableReal:
		return rs.enable(v, m)
	}
	return api.Result{}, api.Faultf(api.Invalid, "do %q: want drain, enable or remove", r.Do)
}

// drain records the drain and applies it to the data planes.
func (rs *Requests) drain(v model.VirtualService, m pool.Member, r api.RealRequest) (api.Result, error) {
	key := pool.Key{Service: v.Name, At: m.At}
	before := rs.services.drains[key]
	drain := &pool.Drain{Cause: "a command requested it", Since: time.Now(), Asked: true, Endpoint: m.Endpoint}
	if before != nil {
		drain.Since = before.Since
	}
	drain.Deadline = pool.Deadline(drain.Since, r.Deadline, v.Drain)
	if r.Now {
		drain.Ended = time.Now()
	}
	if before != nil && before.Asked && !before.Ended.IsZero() && r.Deadline == 0 {
		return api.Result{Services: rs.services.views(v.Name)}, nil
	}
	notes := rs.lastServerNotes(v, m)
	rs.services.drains[key] = drain
	if err := rs.services.reapply(v.Name); err != nil {
		delete(rs.services.drains, key)
		return api.Result{}, fmt.Errorf("drain %s of service %s: %w", m.Text(), v.Name, err)
	}
	rs.services.saveDrains(key)
	return api.Result{Services: rs.services.views(v.Name), Changed: true, Notes: notes}, nil
}

// lastServerNotes returns a note if no other real server is up to get new flows.
func (rs *Requests) lastServerNotes(v model.VirtualService, m pool.Member) []string {
	for _, r := range rs.services.pools[v.Name].Full.Reals {
		if r.At(0) != m.At && r.State == model.RealUp && r.Weight > 0 && r.At(0) != v.Sorry {
			return nil
		}
	}
	if v.Sorry.Addr().IsValid() {
		return []string{fmt.Sprintf("no other real server of %s is up: new clients are sent to the sorry server",
			v.Name)}
	}
	return []string{fmt.Sprintf("no other real server of %s is up: new clients get no answer", v.Name)}
}

func (rs *Requests) enable(v model.VirtualService, m pool.Member) (api.Result, error) {
	key := pool.Key{Service: v.Name, At: m.At}
	drain := rs.services.drains[key]
	readmitted := rs.services.health.Readmit(v.Name, m.At)
	if m.Spec.State != model.RealUp {
		if v.Origin != model.FromCommand {
			return api.Result{}, spec.OtherOrigin("service "+v.Name, v.Origin)
		}
		i := slices.IndexFunc(v.Reals, m.Spec.Is)
		v.Reals[i].State = model.RealUp
	} else if (drain == nil || !drain.Asked) && !readmitted {
		return api.Result{Services: rs.services.views(v.Name)}, nil
	}
	delete(rs.services.drains, key)
	var err error
	if m.Spec.State == model.RealUp {
		err = rs.services.reapply(v.Name)
	} else {
		err = rs.settle(rs.state.Desired().WithService(v))
	}
	if err != nil {
		if drain != nil {
			rs.services.drains[key] = drain
		}
		if readmitted { // a repeated attempt does not readmit it
			rs.services.markDirty(v.Name)
		}
		return api.Result{}, fmt.Errorf("enable %s of service %s: %w", m.Text(), v.Name, err)
	}
	rs.services.saveDrains(key)
	return api.Result{Services: rs.services.views(v.Name), Changed: true}, nil
}

func (rs *Requests) remove(v model.VirtualService, r api.RealRequest) (api.Result, error) {
	if v.Origin != model.FromCommand {
		return api.Result{}, spec.OtherOrigin("service "+v.Name, v.Origin)
	}
	i := slices.IndexFunc(v.Reals, func(o model.RealServer) bool { return o.String() == r.Real })
	m, err := rs.find(v.Name, r.Real)
	switch {
	case i < 0 && err != nil && api.CodeOf(err) != api.NotFound:
		return api.Result{}, err
	case i < 0 && err != nil:
		return api.Result{Notes: []string{fmt.Sprintf("service %s has no real server %s: nothing to do", v.Name,
			r.Real)}}, nil
	case i < 0 && !m.Spec.Select.IsZero():
		return api.Result{}, api.Faultf(api.Invalid,
			"the selector %s adds %s to service %s: remove the selector, or drain this real server", m.Spec, r.Real,
			v.Name)
	case i < 0:
		if i = slices.IndexFunc(v.Reals, m.Spec.Is); i < 0 && !r.Now {
			return api.Result{Services: rs.services.views(v.Name)}, nil // it is leaving already
		}
	}
	if r.Now && err == nil {
		rs.forgetMember(v.Name, m.At)
	}
	if i >= 0 {
		v.Reals = slices.Delete(v.Reals, i, i+1)
	}
	if err := rs.settle(rs.state.Desired().WithService(v)); err != nil {
		return api.Result{}, fmt.Errorf("remove %s of service %s: %w", r.Real, v.Name, err)
	}
	return api.Result{Services: rs.services.views(v.Name), Changed: true}, nil
}

// forgetMember removes a member from the current pool, so that it does not drain when
// it leaves.
func (rs *Requests) forgetMember(service string, at netip.AddrPort) {
	rs.services.pools[service] = rs.services.pools[service].Without(at)
}

// find returns the real server that the text names.
func (rs *Requests) find(service, text string) (pool.Member, error) {
	p := rs.services.pools[service]
	if p == nil {
		return pool.Member{}, api.Faultf(api.Conflict,
			"service %s is not applied: %s", service, rs.state.Problems[state.OfService(service)])
	}
	var fits []pool.Member
	var names []string
	for _, m := range p.Members {
		if m.Text() == text {
			return m, nil
		}
		if p.Answers(m, text) || m.Endpoint != "" &&
			(m.Endpoint == text || rs.sandboxNamed(m.Endpoint, text)) {
			fits, names = append(fits, m), append(names, m.Text())
		}
	}
	switch len(fits) {
	case 0:
		return pool.Member{}, api.Faultf(api.NotFound,
			"service %s has no real server %s: `fairlead service show %s` lists them", service, text,
			escape.Shell(service))
	case 1:
		return fits[0], nil
	}
	return pool.Member{}, api.Faultf(api.Invalid,
		"service %s has several real servers at %s: name one of %s", service, text, strings.Join(names, ", "))
}

// sandboxNamed reports whether the attachment's sandbox has that name.
func (rs *Requests) sandboxNamed(endpoint, text string) bool {
	a, known := rs.state.Desired().Attachment(endpoint)
	_, name, _ := strings.Cut(a.Ref, ":")
	return known && (a.Ref == text || name == text || rs.services.containers[a.Ref].Name == text)
}
