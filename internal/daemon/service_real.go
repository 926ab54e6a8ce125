package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/escape"
	"fairlead/internal/model"
)

// RealAction is what becomes of a real server.
type RealAction string

// The actions.
const (
	// DrainReal gives it no new flows, until EnableReal.
	DrainReal RealAction = "drain"
	// EnableReal takes that back, and ends that clients' failures keep it down.
	EnableReal RealAction = "enable"
	// RemoveReal takes it out of its service, after a drain.
	RemoveReal RealAction = "remove"
)

// RealRequest asks for something to become of a real server.
type RealRequest struct {
	Service string `json:"service"`
	// Real names it: by its address, with its port or without, or by the
	// attachment or the sandbox that it is.
	Real string     `json:"real"`
	Do   RealAction `json:"do"`
	// Deadline bounds the drain; 0 is as the service has it.
	Deadline time.Duration `json:"deadline,omitempty"`
	// Now ends its flows at once, instead of draining it.
	Now bool `json:"now,omitempty"`
}

// ChangeReal drains, enables or removes a real server.
func (d *Daemon) ChangeReal(r RealRequest) (Result, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, known := d.service(r.Service)
	if !known {
		return Result{}, noService(r.Service)
	}
	if r.Real == "" { // as a variable is that a script has not set
		return Result{}, fault(Invalid, "%s a real server of service %s: want its name or address: `fairlead service show %s` lists them", r.Do, r.Service, escape.Shell(r.Service))
	}
	if r.Deadline < 0 {
		return Result{}, fault(Invalid, "drain %s of service %s: deadline %s: want a time from now", r.Real, r.Service, r.Deadline)
	}
	if r.Do == RemoveReal {
		return d.removeReal(v, r)
	}
	m, err := d.findMember(r.Service, r.Real)
	if err != nil {
		return Result{}, err
	}
	if m.leaving {
		return Result{}, fault(Conflict, "%s leaves service %s: put it in again with `fairlead service set %s --real %s`", m.text(), v.Name, escape.Shell(v.Name), m.text())
	}
	switch r.Do {
	case DrainReal:
		return d.drainReal(v, m, r)
	case EnableReal:
		return d.enableReal(v, m)
	}
	return Result{}, fault(Invalid, "do %q: want drain, enable or remove", r.Do)
}

// drainReal notes the drain, and has the planes know.
func (d *Daemon) drainReal(v model.VirtualService, m member, r RealRequest) (Result, error) {
	key := realKey{v.Name, m.at}
	before := d.services.drains[key]
	drain := &Drain{Cause: "a command asked for it", Since: time.Now(), Asked: true, Endpoint: m.Endpoint}
	if before != nil {
		drain.Since = before.Since
	}
	drain.Deadline = deadline(drain.Since, r.Deadline, v.Drain)
	if r.Now {
		drain.Ended = time.Now()
	}
	if before != nil && before.Asked && !before.Ended.IsZero() && r.Deadline == 0 {
		return Result{Services: d.viewServices(v.Name)}, nil
	}
	notes := d.last(v, m)
	d.services.drains[key] = drain
	if err := d.reapply(v.Name); err != nil {
		delete(d.services.drains, key)
		return Result{}, fmt.Errorf("drain %s of service %s: %w", m.text(), v.Name, err)
	}
	d.keepDrains(key)
	return Result{Services: d.viewServices(v.Name), Changed: true, Notes: notes}, nil
}

// last says what it means that the last real server that is up gets no new
// flows.
func (d *Daemon) last(v model.VirtualService, m member) []string {
	for _, r := range d.services.pools[v.Name].full.Reals {
		if r.At(0) != m.at && r.State == model.RealUp && r.Weight > 0 && r.At(0) != v.Sorry {
			return nil
		}
	}
	if v.Sorry.Addr().IsValid() {
		return []string{fmt.Sprintf("no other real server of %s is up: new clients are sent to the sorry server", v.Name)}
	}
	return []string{fmt.Sprintf("no other real server of %s is up: new clients are served by none", v.Name)}
}

func (d *Daemon) enableReal(v model.VirtualService, m member) (Result, error) {
	key := realKey{v.Name, m.at}
	drain := d.services.drains[key]
	readmitted := d.health.Readmit(v.Name, m.at)
	if m.spec.State != model.RealUp {
		if v.Origin != model.FromCommand {
			return Result{}, others("service "+v.Name, v.Origin)
		}
		i := slices.IndexFunc(v.Reals, m.spec.Is)
		v.Reals[i].State = model.RealUp
	} else if (drain == nil || !drain.Asked) && !readmitted {
		return Result{Services: d.viewServices(v.Name)}, nil
	}
	delete(d.services.drains, key)
	var err error
	if m.spec.State == model.RealUp {
		err = d.reapply(v.Name)
	} else {
		err = d.settle(withService(d.desired, v))
	}
	if err != nil {
		if drain != nil {
			d.services.drains[key] = drain
		}
		return Result{}, fmt.Errorf("enable %s of service %s: %w", m.text(), v.Name, err)
	}
	d.keepDrains(key)
	return Result{Services: d.viewServices(v.Name), Changed: true}, nil
}

func (d *Daemon) removeReal(v model.VirtualService, r RealRequest) (Result, error) {
	if v.Origin != model.FromCommand {
		return Result{}, others("service "+v.Name, v.Origin)
	}
	i := slices.IndexFunc(v.Reals, func(o model.RealServer) bool { return o.String() == r.Real })
	m, err := d.findMember(v.Name, r.Real)
	switch {
	case i < 0 && err != nil:
		return Result{Notes: []string{fmt.Sprintf("service %s has no real server %s: nothing to do", v.Name, r.Real)}}, nil
	case i < 0 && !m.spec.Select.IsZero():
		return Result{}, fault(Invalid, "%s is of service %s because of %s: remove that, or drain the one", r.Real, v.Name, m.spec)
	case i < 0:
		if i = slices.IndexFunc(v.Reals, m.spec.Is); i < 0 && !r.Now {
			return Result{Services: d.viewServices(v.Name)}, nil // it leaves already
		}
	}
	if r.Now && err == nil {
		d.forgetMember(v.Name, m.at)
	}
	if i >= 0 {
		v.Reals = slices.Delete(v.Reals, i, i+1)
	}
	if err := d.settle(withService(d.desired, v)); err != nil {
		return Result{}, fmt.Errorf("remove %s of service %s: %w", r.Real, v.Name, err)
	}
	return Result{Services: d.viewServices(v.Name), Changed: true}, nil
}

// forgetMember makes as if there had not been a member, so that it does not
// drain when it leaves.
func (d *Daemon) forgetMember(service string, at netip.AddrPort) {
	p := *d.services.pools[service]
	p.members = slices.DeleteFunc(slices.Clone(p.members), func(m member) bool { return m.at == at })
	p.index()
	d.services.pools[service] = &p
}

// findMember returns the real server that a text means.
func (d *Daemon) findMember(service, text string) (member, error) {
	p := d.services.pools[service]
	if p == nil {
		return member{}, fault(Conflict, "service %s is not applied: %s", service, d.problems[serviceProblem(service)])
	}
	var fits []member
	var names []string
	for _, m := range p.members {
		if m.text() == text {
			return m, nil
		}
		if m.at.Addr().String() == text || m.Endpoint != "" && (m.Endpoint == text || d.sandboxNamed(m.Endpoint, text)) {
			fits, names = append(fits, m), append(names, m.text())
		}
	}
	switch len(fits) {
	case 0:
		return member{}, fault(NotFound, "service %s has no real server %s: `fairlead service show %s` lists them", service, text, escape.Shell(service))
	case 1:
		return fits[0], nil
	}
	return member{}, fault(Invalid, "service %s has several real servers at %s: name one of %s", service, text, strings.Join(names, ", "))
}

// sandboxNamed reports whether the attachment's sandbox is called so.
func (d *Daemon) sandboxNamed(endpoint, text string) bool {
	a, known := d.attachment(endpoint)
	_, name, _ := strings.Cut(a.Ref, ":")
	return known && (a.Ref == text || name == text || d.services.containers[a.Ref].Name == text)
}
