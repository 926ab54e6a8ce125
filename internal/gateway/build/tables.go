package build

import "fairlead/internal/gateway/route"

// tableKey identifies a table: each entry point has one for connections with TLS and one
// for those without.
type tableKey struct {
	entry  string
	secure bool
}

// tableChanges are the routers that a build removes from tables and adds to them.
type tableChanges map[tableKey]*tableChange

type tableChange struct{ removed, added []*route.Router }

func (t tableChanges) of(p placed) *tableChange {
	key := tableKey{p.entry, p.secure}
	if t[key] == nil {
		t[key] = new(tableChange)
	}
	return t[key]
}

func (t tableChanges) remove(all []placed) {
	for _, p := range all {
		c := t.of(p)
		c.removed = append(c.removed, p.router)
	}
}

func (t tableChanges) add(all []placed) {
	for _, p := range all {
		c := t.of(p)
		c.added = append(c.added, p.router)
	}
}

// apply returns the table after the changes.
func (t tableChanges) apply(before *route.Table, key tableKey) *route.Table {
	if before == nil {
		before = route.NewTable(nil)
	}
	if c := t[key]; c != nil {
		return before.With(c.removed, c.added)
	}
	return before
}
