package member

import (
	"testing"

	"fairlead/internal/cluster/kv"
)

// TestProgress follows two nodes that have the same records. Neither may seem to be behind, whenever it
// was started, also after both have accepted a restored store. A node that lacks a change is behind.
func TestProgress(t *testing.T) {
	entry := func(key string, revision int64) kv.Entry {
		return kv.Entry{Key: key, Value: []byte("1"), Revision: revision}
	}
	first := kv.NewTable(10, []kv.Entry{entry("nets/a", 5), entry("nets/b", 6), entry("alive/x", 10)})
	renewed := first.With(20, []kv.Entry{entry("alive/x", 20)})
	deleted := renewed.With(21, []kv.Entry{{Key: "nets/b", Revision: 21}})
	changed := deleted.With(22, []kv.Entry{entry("nets/a", 22)})
	restored := kv.NewTable(7, []kv.Entry{entry("nets/a", 5), entry("nets/b", 6)})
	for name, test := range map[string]struct {
		one, two []*kv.Table
		behind   bool
	}{
		"the same":              {[]*kv.Table{first}, []*kv.Table{first}, false},
		"only alive differs":    {[]*kv.Table{first, renewed}, []*kv.Table{first}, false},
		"started later":         {[]*kv.Table{first, renewed}, []*kv.Table{renewed}, false},
		"merged updates":        {[]*kv.Table{first, renewed, deleted, changed}, []*kv.Table{first, changed}, false},
		"deleted before start":  {[]*kv.Table{first, deleted}, []*kv.Table{deleted}, false},
		"restored":              {[]*kv.Table{first, changed, restored}, []*kv.Table{restored}, false},
		"a deletion is missing": {[]*kv.Table{first, renewed, deleted}, []*kv.Table{first, renewed}, true},
		"a change is missing":   {[]*kv.Table{first, changed}, []*kv.Table{first, deleted}, true},
		"a restore is old":      {[]*kv.Table{first, changed, restored}, []*kv.Table{first}, false},
	} {
		one, two := progressThrough(test.one), progressThrough(test.two)
		if behind := one.needed > two.applied; behind != test.behind {
			t.Errorf("%s: needed %d, and the other node has applied %d", name, one.needed, two.applied)
		}
		if two.needed > one.applied {
			t.Errorf("%s: needed %d, and the first node has applied %d", name, two.needed, one.applied)
		}
	}
}

// progressThrough returns the progress of a node that gets these snapshots in turn.
func progressThrough(tables []*kv.Table) (p progress) {
	var before kv.Snapshot
	last := kv.NewTable(0, nil)
	for _, table := range tables {
		p = p.after(before, kv.Update{Snapshot: table, Changed: kv.Diff(last, table)})
		before, last = table, table
	}
	return p
}
