package kv_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/cluster/kv"
)

// TestTable compares tables with maps through random changes of every size. Earlier tables must
// stay as they were.
func TestTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	table, content := kv.NewTable(1, nil), map[string]kv.Entry{}
	for revision := int64(2); revision < 200; revision++ {
		before, contentBefore := table, maps.Clone(content)
		var changes []kv.Entry
		for range 1 + random.IntN(1<<random.IntN(9)) {
			e := kv.Entry{Key: fmt.Sprintf("%c/%d", 'a'+rune(random.IntN(3)), random.IntN(700)), Revision: revision}
			if random.IntN(3) > 0 {
				e.Value = fmt.Append(nil, revision)
				content[e.Key] = e
			} else {
				delete(content, e.Key)
			}
			changes = append(changes, e)
		}
		table = table.With(revision, changes)
		same(t, table, content)
		same(t, before, contentBefore)
		if want, got := different(contentBefore, content), kv.Diff(before, table); !slices.Equal(want, got) {
			t.Fatalf("two tables differ in %v, want %v", got, want)
		}
		rebuilt := kv.NewTable(revision, slices.Collect(maps.Values(content)))
		if diff := kv.Diff(table, rebuilt); len(diff) > 0 {
			t.Fatalf("a new table with the same entries differs in %v", diff)
		}
		if table.Revision() != revision {
			t.Fatalf("revision %d, want %d", table.Revision(), revision)
		}
	}
}

// same compares a table with the entries that it must have.
func same(t *testing.T, table *kv.Table, content map[string]kv.Entry) {
	t.Helper()
	for _, prefix := range []string{"", "a/", "b/1", "c/99", "d", "c/99999", " "} {
		var want []kv.Entry
		for _, key := range slices.Sorted(maps.Keys(content)) {
			if strings.HasPrefix(key, prefix) {
				want = append(want, content[key])
			}
		}
		if got := slices.Collect(table.Under(prefix)); !slices.EqualFunc(want, got, equal) {
			t.Fatalf("entries under %q: %v, want %v", prefix, got, want)
		}
	}
	if table.Len() != len(content) {
		t.Fatalf("the table has %d entries, want %d", table.Len(), len(content))
	}
	for key, want := range content {
		if got, ok := table.Get(key); !ok || !equal(got, want) {
			t.Fatalf("%s is %v, %v, want %v", key, got, ok, want)
		}
	}
	if e, ok := table.Get("a"); ok {
		t.Fatalf("a key that does not exist has the entry %v", e)
	}
}

func equal(a, b kv.Entry) bool {
	return a.Key == b.Key && a.Revision == b.Revision && bytes.Equal(a.Value, b.Value)
}

// different returns the keys whose entries differ, in order.
func different(from, to map[string]kv.Entry) []string {
	var keys []string
	for key, e := range from {
		if _, ok := to[key]; !ok || !equal(to[key], e) {
			keys = append(keys, key)
		}
	}
	for key := range to {
		if _, ok := from[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// TestUnderStops checks that an iteration ends when its consumer has enough.
func TestUnderStops(t *testing.T) {
	table := kv.NewTable(1, []kv.Entry{{Key: "b"}, {Key: "a"}, {Key: "c"}})
	for e := range table.Under("") {
		if e.Key != "a" {
			t.Fatalf("the first key is %s", e.Key)
		}
		break
	}
}
