package datapath

import (
	"errors"
	"fmt"
	"strconv"

	"fairlead/internal/cgroup"
	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// BindHookPrograms are the programs at the socket calls of a workload. They are
// attached in this order. The programs that change addresses come last, so that a
// changed socket always gets its original address reported.
var BindHookPrograms = []string{
	"fl_wl_getsock4", "fl_wl_getsock6", "fl_wl_postbind4", "fl_wl_postbind6", "fl_wl_bind4", "fl_wl_bind6",
	"fl_wl_getpeer4", "fl_wl_getpeer6", "fl_wl_recvmsg4", "fl_wl_recvmsg6",
	"fl_wl_sendmsg4", "fl_wl_sendmsg6", "fl_wl_connect4", "fl_wl_connect6",
}

// unpublished maps the policies to the numbers that the eBPF programs use.
var unpublished = map[model.Unpublished]uint32{
	model.UnpublishedLoopback: ebpf.UnpublishedLoopback,
	model.UnpublishedDeny:     ebpf.UnpublishedDeny,
	model.UnpublishedAllow:    ebpf.UnpublishedAllow,
}

// hookName returns the name of the attachments at a cgroup.
func hookName(id uint64) string { return strconv.FormatUint(id, 16) }

// hookedCgroups returns the ids of the cgroups that this data path's hooks are
// attached to.
func hookedCgroups(p *ebpf.Datapath) []uint64 {
	var ids []uint64
	for _, name := range p.CgroupsOf(BindHookPrograms[0]) {
		if id, err := strconv.ParseUint(name, 16, 64); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// BindHooks are the programs at a workload's cgroup.
var BindHooks = Programs[plan.BindHooks]{
	attach: setBindHooks,
	detach: delBindHooks,
	read:   readBindHooks,
}

func setBindHooks(h *Handle, p *ebpf.Datapath, o plan.BindHooks) error {
	id, err := cgroup.ID(o.Cgroup)
	if err != nil {
		return err
	}
	if err := h.forgetDeadWorkloads(p); err != nil {
		return err
	}
	if err := p.Workloads().Set(p.Table(), id, unpublished[o.Unpublished]); err != nil {
		return err
	}
	for _, hook := range BindHookPrograms {
		if err := p.AttachCgroup(hook, o.Cgroup, hookName(id)); err != nil {
			return err
		}
	}
	return nil
}

// delBindHooks also forgets every workload whose cgroup is gone: the given workload
// may be one of them.
func delBindHooks(h *Handle, p *ebpf.Datapath, o plan.BindHooks) error {
	id, err := cgroup.ID(o.Cgroup)
	if nlutil.Absent(err) {
		return h.forgetDeadWorkloads(p)
	}
	if err != nil {
		return err
	}
	return detachBindHooks(p, id)
}

// detachBindHooks detaches the hooks in reverse order and forgets the workload.
func detachBindHooks(p *ebpf.Datapath, id uint64) error {
	var errs []error
	for i := range BindHookPrograms {
		errs = append(errs, p.DetachCgroup(BindHookPrograms[len(BindHookPrograms)-1-i], hookName(id)))
	}
	return errors.Join(append(errs, p.Workloads().Drop(id))...)
}

// forgetDeadWorkloads forgets the workloads whose cgroups are gone, including those
// of Fairlead processes that were killed.
func (h *Handle) forgetDeadWorkloads(p *ebpf.Datapath) error {
	all, err := p.Workloads().All()
	if err != nil {
		return err
	}
	var errs []error
	for id := range all {
		if _, err := cgroup.Path(id); nlutil.Absent(err) {
			errs = append(errs, detachBindHooks(p, id))
		}
	}
	return errors.Join(errs...)
}

func readBindHooks(h *Handle, p *ebpf.Datapath, o plan.BindHooks) (plan.Object, error) {
	id, err := cgroup.ID(o.Cgroup)
	if err != nil {
		return nil, err
	}
	w, known := p.Workloads().Get(id)
	whole, some := known, known
	for _, hook := range BindHookPrograms {
		has := p.HasCgroup(hook, hookName(id))
		whole, some = whole && has, some || has
	}
	o.Partly = !whole
	if w.Unpublished != unpublished[o.Unpublished] {
		o.Unpublished = policyOf(w.Unpublished)
	}
	return plan.OrNil(o, some), nil
}

// policyOf returns the policy with that number, or "" if there is none.
func policyOf(n uint32) model.Unpublished {
	for _, u := range []model.Unpublished{model.UnpublishedLoopback, model.UnpublishedDeny, model.UnpublishedAllow} {
		if unpublished[u] == n {
			return u
		}
	}
	return ""
}

// LeftoverBindHooks returns the workloads that are not known but have hooks
// attached. It forgets those whose cgroups are gone.
func (h *Handle) LeftoverBindHooks(known map[string]bool) (plan.Plan, error) {
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return nil, err
	}
	if err := h.forgetDeadWorkloads(p); err != nil {
		return nil, err
	}
	var leftovers plan.Plan
	for _, id := range hookedCgroups(p) {
		path, err := cgroup.Path(id)
		if err != nil {
			return nil, err
		}
		w, _ := p.Workloads().Get(id)
		if o := (plan.BindHooks{Cgroup: path, Unpublished: policyOf(w.Unpublished)}); !known[o.Key()] {
			leftovers = append(leftovers, o)
		}
	}
	return leftovers, nil
}

// grantEntry converts a grant into a table entry. If the workload's cgroup is gone,
// the entry has no cgroup.
func (h *Handle) grantEntry(o plan.Grant) (*ebpf.Mapping, error) {
	l := &ebpf.Mapping{Host: ebpf.Address(o.Host), First: o.Ports.First, Last: o.Ports.Last, ToFirst: o.Own.First,
		Class: ebpf.ClassOf(o.Host.Is4(), o.Proto == model.UDP), Flags: ebpf.MappingGrant}
	if o.Host.IsUnspecified() {
		l.Flags |= ebpf.MappingAny
	}
	var err error
	l.Cgroup, err = cgroup.ID(o.Cgroup)
	if nlutil.Absent(err) {
		err = nil
	}
	return l, err
}

// grantObject converts a table entry into a grant. If the workload's cgroup is
// gone, the grant names no cgroup and belongs to no workload.
func (h *Handle) grantObject(l ebpf.Mapping) (plan.Grant, error) {
	o := plan.Grant{Proto: model.TCP, Host: ebpf.Netip(l.Host), Ports: model.PortRange{First: l.First, Last: l.Last},
		Own: model.PortRange{First: l.ToFirst, Last: l.ToFirst + (l.Last - l.First)}}
	if l.Class&1 != 0 {
		o.Proto = model.UDP
	}
	var err error
	o.Cgroup, err = cgroup.Path(l.Cgroup)
	if nlutil.Absent(err) {
		err = nil
	}
	return o, err
}

// reportGrants copies the grants in the table to the programs, per workload.
func reportGrants(p *ebpf.Datapath) error {
	for _, id := range hookedCgroups(p) {
		w, _ := p.Workloads().Get(id)
		if err := p.Workloads().Set(p.Table(), id, w.Unpublished); err != nil {
			return err
		}
	}
	return nil
}

// checkGrants returns an error if another Fairlead process has granted one of the
// new grants' ports to another workload.
func checkGrants(p *ebpf.Datapath, changes []ebpf.Change) error {
	all, err := p.Workloads().All()
	if err != nil {
		return err
	}
	for _, id := range hookedCgroups(p) {
		delete(all, id)
	}
	for _, c := range changes {
		if c.New == nil || c.New.Flags&ebpf.MappingGrant == 0 {
			continue
		}
		for id, w := range all {
			if port, taken := ebpf.Taken(w, *c.New); taken {
				path, _ := cgroup.Path(id)
				return fmt.Errorf("host port %d is granted to the workload in %s: "+
					"choose another port, or stop that workload", port, path)
			}
		}
	}
	return nil
}
