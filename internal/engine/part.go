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

// Assume sets the account to the desired state without observing the kernel.
// HealPart then finds what differs.
func (e *Engine) Assume() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	record, err := e.load()
	if err != nil {
		return err
	}
	t, err := e.target(record.Desired, record)
	if err == nil {
		e.applied = t.plan
	}
	return err
}

// corrected returns the account with the objects of part replaced by those that
// were found. If part is in an nft table, found has all objects of that table.
func corrected(account, part, found plan.Plan) plan.Plan {
	inspected, now := map[string]bool{}, map[string]plan.Object{}
	tables := map[string]bool{}
	for _, o := range part {
		inspected[o.Key()] = true
		if t := tableOf(o); t != "" {
			tables[t] = true
		}
	}
	for _, o := range found {
		now[o.Key()] = o
	}
	have := make(plan.Plan, 0, len(account))
	for _, o := range account {
		if !tables[tableOf(o)] && !inspected[o.Key()] {
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

// tableOf returns the nft table that the object is in. It is empty for other
// objects, and for tables that are a single object.
func tableOf(o plan.Object) string {
	switch o.(type) {
	case plan.Table, plan.NFTMapping, plan.Member, plan.Proxied:
		return plan.Mark
	case plan.ServiceTable, plan.NFTService:
		return plan.ServicesTable
	}
	return ""
}

// StepError is the error for an object that could not be created.
type StepError struct {
	Object plan.Object
	Err    error
}

// Error implements error: the kernel's errors name the object.
func (e *StepError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }
