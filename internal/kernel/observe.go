package kernel

import (
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"
)

// Observe returns the observed state of the objects of two plans: should, which
// was applied last, and want, which is desired. It adds every other object in the
// host's namespace that has Fairlead's mark. It does not read listeners and
// reservations: these belong to the proxy. Only the goroutine that applies plans may
// call it.
func (h *Host) Observe(should, want plan.Plan) (plan.Plan, error) {
	h.Release() // the cached state may be outdated
	defer h.Release()
	h.ebpf.Lock()
	defer h.ebpf.Unlock()
	have, err := h.readGroups(readOrder, query{plans: []plan.Plan{want, should}})
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, o := range slices.Concat(should, want) {
		if known[o.Key()] {
			continue
		}
		found, err := h.read(o)
		if err != nil {
			return nil, err
		}
		if found != nil {
			known[o.Key()] = true
			have = append(have, found)
		}
	}
	// A damaged link that is wanted is repaired, not removed.
	for _, o := range want {
		known[o.Key()] = true
	}
	for _, k := range kinds.order {
		if k.leftovers == nil {
			continue
		}
		left, err := k.leftovers(h, known)
		if err != nil {
			return nil, fmt.Errorf("list the objects that are in no plan: %w", err)
		}
		have = append(have, left...)
	}
	return have, nil
}

// ObservePart returns the observed state of some objects of a plan. If one of them
// is in an nft table, the result contains everything in that table. Only the
// goroutine that applies plans may call it.
func (h *Host) ObservePart(part plan.Plan) (plan.Plan, error) {
	h.Release() // the cached state may be outdated
	defer h.Release()
	h.ebpf.Lock()
	defer h.ebpf.Unlock()
	var have plan.Plan
	keys, concerned := map[string]bool{}, map[plan.Group]bool{}
	for _, o := range part {
		if g := plan.GroupOf(o); g != plan.Single {
			keys[o.Key()], concerned[g] = true, true
			continue
		}
		found, err := h.read(o)
		if err != nil {
			return nil, err
		}
		if found != nil {
			have = append(have, found)
		}
	}
	var which []plan.Group
	for _, g := range readOrder {
		if concerned[g] {
			which = append(which, g)
		}
	}
	grouped, err := h.readGroups(which, query{plans: []plan.Plan{part}, keys: keys})
	return append(have, grouped...), err
}

// readGroups returns the objects of the groups.
func (h *Host) readGroups(which []plan.Group, q query) (plan.Plan, error) {
	var have plan.Plan
	for _, g := range which {
		found, err := groups[g].read(h, q)
		if err != nil {
			return nil, fmt.Errorf("read the %s: %w", g, err)
		}
		have = append(have, found...)
	}
	return have, nil
}

// read returns the object as the kernel has it, nil when it is missing or in a
// group.
func (h *Host) read(o plan.Object) (plan.Object, error) {
	read := kinds.of(o).read
	if read == nil {
		return nil, nil
	}
	found, err := read(h, o)
	switch {
	case err == nil:
		return found, nil
	case nlutil.Absent(err), errors.Is(err, rtnl.ErrNoSetting):
		return nil, nil
	}
	return nil, fmt.Errorf("read %s: %w", o.Key(), err)
}
