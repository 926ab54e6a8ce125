package kernel

import (
	"errors"
	"fmt"
	"strconv"

	"fairlead/internal/kernel/ebpf"
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

// unpublished numbers the policies as the programs do.
var unpublished = map[model.Unpublished]uint32{
	model.UnpublishedLoopback: ebpf.UnpublishedLoopback,
	model.UnpublishedDeny:     ebpf.UnpublishedDeny,
	model.UnpublishedAllow:    ebpf.UnpublishedAllow,
}

// boundName names the attachments at a cgroup.
func boundName(id uint64) string { return strconv.FormatUint(id, 16) }

// boundCgroups returns the cgroups that this plane's hooks are attached to.
func boundCgroups(p *ebpf.Datapath) []uint64 {
	var ids []uint64
	for _, name := range p.CgroupsOf(boundHooks[0]) {
		if id, err := strconv.ParseUint(name, 16, 64); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func (h *Host) setBindHooks(p *ebpf.Datapath, o plan.BindHooks) error {
	id, err := workloadCgroup(o.Cgroup)
	if err != nil {
		return err
	}
	if err := h.forgetDead(p); err != nil {
		return err
	}
	if err := p.SetWorkload(id, unpublished[o.Unlisted]); err != nil {
		return err
	}
	for _, hook := range boundHooks {
		if err := p.AttachCgroup(hook, o.Cgroup, boundName(id)); err != nil {
			return err
		}
	}
	return nil
}

// delBindHooks also forgets every workload whose cgroup is gone: the one that is
// meant may be among them.
func (h *Host) delBindHooks(p *ebpf.Datapath, o plan.BindHooks) error {
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
func unbind(p *ebpf.Datapath, id uint64) error {
	var errs []error
	for i := range boundHooks {
		errs = append(errs, p.DetachCgroup(boundHooks[len(boundHooks)-1-i], boundName(id)))
	}
	return errors.Join(append(errs, p.DropWorkload(id))...)
}

// forgetDead forgets the workloads whose cgroups are gone, also those of
// processes of ours that were killed.
func (h *Host) forgetDead(p *ebpf.Datapath) error {
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

func (h *Host) readBindHooks(p *ebpf.Datapath, o plan.BindHooks) (plan.Object, error) {
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
	if w.Unlisted != unpublished[o.Unlisted] {
		o.Unlisted = policy(w.Unlisted)
	}
	return orNil(o, some), nil
}

// policy is the policy of that number.
func policy(n uint32) model.Unpublished {
	for _, u := range []model.Unpublished{model.UnpublishedLoopback, model.UnpublishedDeny, model.UnpublishedAllow} {
		if unpublished[u] == n {
			return u
		}
	}
	return ""
}

// leftoverBindHooks returns the other workloads that our hooks are attached to, and
// forgets those whose cgroups are gone.
func (h *Host) leftoverBindHooks(known map[string]bool) (plan.Plan, error) {
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return nil, err
	}
	if err := h.forgetDead(p); err != nil {
		return nil, err
	}
	var leftovers plan.Plan
	for _, id := range boundCgroups(p) {
		path, err := cgroupPath(id)
		if err != nil {
			return nil, err
		}
		w, _ := p.Workload(id)
		if o := (plan.BindHooks{Cgroup: path, Unlisted: policy(w.Unlisted)}); !known[o.Key()] {
			leftovers = append(leftovers, o)
		}
	}
	return leftovers, nil
}

// grantEntry turns a grant into the table's form. That of a workload whose
// cgroup is gone has no cgroup.
func (h *Host) grantEntry(o plan.Grant) (*ebpf.Mapping, error) {
	l := &ebpf.Mapping{Host: ebpf.Address(o.Host), First: o.Ports.First, Last: o.Ports.Last, ToFirst: o.Own.First,
		Plane: ebpf.ClassOf(o.Host.Is4(), o.Proto == model.UDP), Flags: ebpf.MappingGrant}
	if o.Host.IsUnspecified() {
		l.Flags |= ebpf.MappingAny
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
func (h *Host) grantObject(l ebpf.Mapping) (plan.Grant, error) {
	o := plan.Grant{Proto: model.TCP, Host: ebpf.Netip(l.Host), Ports: model.PortRange{First: l.First, Last: l.Last},
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

// reportGrants tells the programs what the table now grants each workload.
func reportGrants(p *ebpf.Datapath) error {
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
func elsewhere(p *ebpf.Datapath, changes []ebpf.Change) error {
	all, err := p.Workloads()
	if err != nil {
		return err
	}
	for _, id := range boundCgroups(p) {
		delete(all, id)
	}
	for _, c := range changes {
		if c.New == nil || c.New.Flags&ebpf.MappingGrant == 0 {
			continue
		}
		for id, w := range all {
			if port, taken := ebpf.Taken(w, *c.New); taken {
				path, _ := cgroupPath(id)
				return fmt.Errorf("host port %d is granted to the workload in %s: choose another, or stop that one", port, path)
			}
		}
	}
	return nil
}
