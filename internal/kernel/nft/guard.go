package nft

import (
	"bytes"
	"slices"

	"fairlead/internal/plan"

	"github.com/google/nftables"
)

func guardTable(g plan.Guard) definition { return compileTable(plan.GuardTable, g.Text()) }

// SetGuard creates or replaces the table in one transaction.
func (h *Handle) SetGuard(g plan.Guard) error {
	return h.change(func(b *batch) { b.makeTable(guardTable(g)) })
}

// DelGuard deletes the guard.
func (h *Handle) DelGuard(plan.Guard) error { return h.drop(guardTable(plan.Guard{})) }

// ReadGuard returns g if its table exists and is complete. It returns an empty
// Guard if the table exists but differs.
func (h *Handle) ReadGuard(g plan.Guard) (plan.Object, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return nil, nil
	}
	t := guardTable(g)
	if err := h.nft.find(t.Table); err != nil {
		return nil, missing(err)
	}
	whole, err := h.nft.readWhole(t)
	if err != nil {
		return nil, err
	}
	if !whole {
		return plan.Guard{}, nil
	}
	for _, s := range t.sets {
		have, err := h.nft.elements(s)
		if err != nil {
			return plan.Guard{}, missing(err)
		}
		if !sameKeys(have, t.elements[s.Name]) {
			return plan.Guard{}, nil
		}
	}
	return g, nil
}

// sameKeys reports whether two lists of elements have the same keys.
func sameKeys(a, b []nftables.SetElement) bool {
	byKey := func(x, y nftables.SetElement) int { return bytes.Compare(x.Key, y.Key) }
	a, b = slices.SortedFunc(slices.Values(a), byKey), slices.SortedFunc(slices.Values(b), byKey)
	return slices.EqualFunc(a, b, func(x, y nftables.SetElement) bool { return bytes.Equal(x.Key, y.Key) })
}

// LeftoverGuard returns the table if no plan contains it.
func (h *Handle) LeftoverGuard(known map[string]bool) (plan.Plan, error) {
	return leftover(h, plan.Guard{}, guardTable(plan.Guard{}), known)
}
