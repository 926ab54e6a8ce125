package engine

import (
	"context"
	"fmt"

	"fairlead/internal/plan"
)

// Account returns what the host holds by our own account; nil when that is not
// known and Heal must look. It must not be changed.
func (e *Engine) Account() plan.Plan {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.applied
}

// HealPart is Heal for some objects of the account: it asks the kernel about
// those alone, and returns the steps that it has taken. Without an account it
// is Heal.
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
		e.applied = want // what has strayed has, and the rest is as it was
		return nil, err
	}
	return differing, err
}

// Assume takes for the account what should be: HealPart finds out what is not.
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

// corrected returns the account with what was found in the place of the part
// that was looked at. Of an nft table, anything may be found.
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

// tableOf returns the nft table that the object is in; empty for others, and for
// tables of one object.
func tableOf(o plan.Object) string {
	switch o.(type) {
	case plan.Table, plan.NFTMapping, plan.Member, plan.Proxied:
		return plan.Mark
	case plan.ServiceTable, plan.NFTService:
		return plan.ServicesTable
	}
	return ""
}

// StepError says which object could not be made.
type StepError struct {
	Object plan.Object
	Err    error
}

// Error implements error: the kernel's errors name the object.
func (e *StepError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }
