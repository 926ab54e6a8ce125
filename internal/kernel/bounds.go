package kernel

import (
	"errors"
	"fmt"
	"strconv"

	"fairlead/internal/kernel/steer"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// boundHooks are the programs at the socket calls of a workload in the host's
// namespace. Those that turn come last, so that no socket is turned before it
// can be told what it has asked for.
var boundHooks = []string{
	"own_getsockname4", "own_getsockname6", "own_post_bind4", "own_post_bind6", "own_bind4", "own_bind6",
	"own_getpeername4", "own_getpeername6", "own_recvmsg4", "own_recvmsg6",
	"own_sendmsg4", "own_sendmsg6", "own_connect4", "own_connect6",
}

// unlisted numbers the policies as the programs do.
var unlisted = map[model.Unlisted]uint32{
	model.UnlistedLoopback: steer.UnlistedLoopback,
	model.UnlistedDeny:     steer.UnlistedDeny,
	model.UnlistedAllow:    steer.UnlistedAllow,
}

// boundName names the attachments at a cgroup.
func boundName(id uint64) string { return strconv.FormatUint(id, 16) }

// boundCgroups returns the cgroups that this plane's hooks are attached to.
func boundCgroups(p *steer.Plane) []uint64 {
	var ids []uint64
	for _, name := range p.CgroupsOf(boundHooks[0]) {
		if id, err := strconv.ParseUint(name, 16, 64); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func (h *Host) setBounds(p *steer.Plane, o plan.Bounds) error {
	id, err := workloadCgroup(o.Cgroup)
	if err != nil {
		return err
	}
	if err := h.forgetDead(p); err != nil {
		return err
	}
	if err := p.SetWorkload(id, unlisted[o.Unlisted]); err != nil {
		return err
	}
	for _, hook := range boundHooks {
		if err := p.AttachCgroup(hook, o.Cgroup, boundName(id)); err != nil {
			return err
		}
	}
	return nil
}

// delBounds also forgets every workload whose cgroup is gone: the one that is
// meant may be among them.
func (h *Host) delBounds(p *steer.Plane, o plan.Bounds) error {
	id, err := workloadCgroup(o.Cgroup)
	if absent(err) {
		return h.forgetDead(p)
	}
	if err != nil {
		return err
	}
	return unbind(p, id)
}

// unbind detaches the hooks in the opposite order.
func unbind(p *steer.Plane, id uint64) error {
	var errs []error
	for i := range boundHooks {
		errs = append(errs, p.DetachCgroup(boundHooks[len(boundHooks)-1-i], boundName(id)))
	}
	return errors.Join(append(errs, p.DropWorkload(id))...)
}

// forgetDead forgets the workloads whose cgroups are gone, also those of
// processes of ours that were killed.
func (h *Host) forgetDead(p *steer.Plane) error {
	all, err := p.Workloads()
	if err != nil {
		return err
	}
	var errs []error
	for id := range all {
		if _, err := cgroupPath(id); absent(err) {
			errs = append(errs, unbind(p, id))
		}
	}
	return errors.Join(errs...)
}

func (h *Host) readBounds(p *steer.Plane, o plan.Bounds) (plan.Object, error) {
	id, err := workloadCgroup(o.Cgroup)
	if err != nil {
		return nil, err
	}
	w, known := p.Workload(id)
	whole, some := known, known
	for _, hook := range boundHooks {
		has := p.HasCgroup(hook, boundName(id))
		whole, some = whole && has, some || has
	}
	o.Partly = !whole
	if w.Unlisted != unlisted[o.Unlisted] {
		o.Unlisted = policy(w.Unlisted)
	}
	return orNil(o, some), nil
}

// policy is the policy of that number.
func policy(n uint32) model.Unlisted {
	for _, u := range []model.Unlisted{model.UnlistedLoopback, model.UnlistedDeny, model.UnlistedAllow} {
		if unlisted[u] == n {
			return u
		}
	}
	return ""
}

// strayBounds returns the other workloads that our hooks are attached to, and
// forgets those whose cgroups are gone.
func (h *Host) strayBounds(known map[string]bool) (plan.Plan, error) {
	p, err := h.planeIfAny()
	if err != nil || p == nil {
		return nil, err
	}
	if err := h.forgetDead(p); err != nil {
		return nil, err
	}
	var strays plan.Plan
	for _, id := range boundCgroups(p) {
		path, err := cgroupPath(id)
		if err != nil {
			return nil, err
		}
		w, _ := p.Workload(id)
		if o := (plan.Bounds{Cgroup: path, Unlisted: policy(w.Unlisted)}); !known[o.Key()] {
			strays = append(strays, o)
		}
	}
	return strays, nil
}

// grantEntry turns a grant into the table's form. That of a workload whose
// cgroup is gone has no cgroup.
func (h *Host) grantEntry(o plan.Grant) (*steer.Lead, error) {
	l := &steer.Lead{Host: steer.Address(o.Host), First: o.Ports.First, Last: o.Ports.Last, ToFirst: o.Own.First,
		Plane: steer.PlaneOf(o.Host.Is4(), o.Proto == model.UDP), Flags: steer.LeadGrant}
	if o.Host.IsUnspecified() {
		l.Flags |= steer.LeadAny
	}
	var err error
	l.Cgroup, err = workloadCgroup(o.Cgroup)
	if absent(err) {
		err = nil
	}
	return l, err
}

// grantObject turns an entry of the table back into a grant. That of a
// workload whose cgroup is gone names none, so that it is nobody's.
func (h *Host) grantObject(l steer.Lead) (plan.Grant, error) {
	o := plan.Grant{Proto: model.TCP, Host: steer.Netip(l.Host), Ports: model.PortRange{First: l.First, Last: l.Last},
		Own: model.PortRange{First: l.ToFirst, Last: l.ToFirst + (l.Last - l.First)}}
	if l.Plane&1 != 0 {
		o.Proto = model.UDP
	}
	var err error
	o.Cgroup, err = cgroupPath(l.Cgroup)
	if absent(err) {
		err = nil
	}
	return o, err
}

// tellGrants tells the programs what the table now grants each workload.
func tellGrants(p *steer.Plane) error {
	for _, id := range boundCgroups(p) {
		w, _ := p.Workload(id)
		if err := p.SetWorkload(id, w.Unlisted); err != nil {
			return err
		}
	}
	return nil
}

// elsewhere returns an error if a process of ours other than this one has
// granted a port of the new grants to another workload.
func elsewhere(p *steer.Plane, changes []steer.Change) error {
	all, err := p.Workloads()
	if err != nil {
		return err
	}
	for _, id := range boundCgroups(p) {
		delete(all, id)
	}
	for _, c := range changes {
		if c.New == nil || c.New.Flags&steer.LeadGrant == 0 {
			continue
		}
		for id, w := range all {
			if port, taken := steer.Taken(w, *c.New); taken {
				path, _ := cgroupPath(id)
				return fmt.Errorf("host port %d is granted to the workload in %s: choose another, or stop that one", port, path)
			}
		}
	}
	return nil
}
