package nft

import (
	"fairlead/internal/plan"

	"github.com/google/nftables"
)

func noTrackTable(u plan.NoTrack) definition { return compileTable(u.Table(), u.Text()) }

// SetNoTrack creates the table in one transaction; it replaces a damaged one.
func (h *Handle) SetNoTrack(u plan.NoTrack) error {
	return h.change(func(b *batch) { b.makeTable(noTrackTable(u)) })
}

// DelNoTrack deletes the no track.
func (h *Handle) DelNoTrack(u plan.NoTrack) error { return h.drop(noTrackTable(u)) }

// ReadNoTrack returns u if its table exists and is complete.
func (h *Handle) ReadNoTrack(u plan.NoTrack) (plan.Object, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return nil, nil
	}
	whole, err := h.nft.readWhole(noTrackTable(u))
	if err != nil || !whole {
		return nil, err
	}
	return u, nil
}

// LeftoverNoTrack returns Fairlead's no-track tables that are in no plan.
func (h *Handle) LeftoverNoTrack(known map[string]bool) (plan.Plan, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return nil, nil
	}
	tables, err := h.nft.tables(nftables.TableFamilyINet)
	if err != nil {
		return nil, err
	}
	var found plan.Plan
	for _, t := range tables {
		if u, ours := plan.NoTrackOf(t.Name); ours && !known[u.Key()] {
			found = append(found, u)
		}
	}
	return found, nil
}
