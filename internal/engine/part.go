package engine

import (
	"context"
	"fmt"

	"fairlead/internal/plan"
)

// Account returns the objects that the engine has applied. It is nil if that is not
// known, and Heal must observe the kernel. The caller must not change it.
func (e *Engine) Account() plan.Plan {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.applied
}

// HealPart is like Heal, but for some objects of Account only. It observes only
// these objects, and returns the steps that it carried out. If there is no account,
// it calls Heal.
func (e *Engine) HealPart(ctx context.Context, part plan.Plan) ([]plan.Op, error) {
	e.mu.Lock()
	if e.applied == nil {
		e.mu.Unlock()
		return e.Heal(ctx)
	}
	defer e.mu.Unlock()
	found, err := e.cfg.Kernel.ObservePart(part)
	if err != nil {
		return nil, fmt.Errorf("observe host: %w", err)
	}
	want := e.applied
	have := corrected(want, part, found)
	if len(plan.Diff(have, want)) == 0 {
		return nil, nil
	}
	record, err := e.load()
	if err != nil {
		return nil, err
	}
	differing := diff(record, have, want)
	made, err := e.apply(ctx, &record, have, want)
	if err != nil && !made {
		e.applied = want // the objects still differ, and everything else is unchanged
		return nil, err
	}
	return differing, err
}

// Assume sets the account to the applied state of the record, without observing the kernel.
// HealPart then finds what differs.
func (e *Engine) Assume() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	record, err := e.load()
	if err != nil {
		return err
	}
	t, err := e.target(record.Applied, record)
	if err == nil {
		e.applied = t.plan
	}
	return err
}

// corrected returns the account with the objects of part replaced by those that
// were found. If part is in an nft table, found has all objects of that table.
func corrected(account, part, found plan.Plan) plan.Plan {
	inspected, now := map[string]bool{}, map[string]plan.Object{}
	tables := map[plan.Group]bool{}
	for _, o := range part {
		inspected[o.Key()] = true
		if g := plan.GroupOf(o); g.IsTable() {
			tables[g] = true
		}
	}
	for _, o := range found {
		now[o.Key()] = o
	}
	have := make(plan.Plan, 0, len(account))
	for _, o := range account {
		if !tables[plan.GroupOf(o)] && !inspected[o.Key()] {
			have = append(have, o)
			continue
		}
		if is, ok := now[o.Key()]; ok {
			have = append(have, is)
			delete(now, o.Key())
		}
	}
	for _, o := range found {
		if _, left := now[o.Key()]; left {
			have = append(have, o)
		}
	}
	return have
}
