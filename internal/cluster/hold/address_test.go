package hold

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/vip"
)

// counted is a snapshot that counts what is read.
type counted struct {
	kv.Snapshot
	read []string
}

func (c *counted) Get(key string) (kv.Entry, bool) {
	c.read = append(c.read, key)
	return c.Snapshot.Get(key)
}

func (c *counted) Under(prefix string) func(func(kv.Entry) bool) {
	c.read = append(c.read, prefix)
	return c.Snapshot.Under(prefix)
}

// TestRenewalReadsOneRecord: the holder renews each address several times per second. A renewal must not
// read the records of all nodes again.
func TestRenewalReadsOneRecord(t *testing.T) {
	at := netip.MustParsePrefix("192.0.2.10/24")
	rec := record.Address{Prefix: at, Hold: time.Second, Holder: "a"}
	records := map[string]any{"addrs/192.0.2.10": rec, "nodes/a": record.Node{ID: "a"}, "nodes/b": record.Node{ID: "b"},
		"alive/a": record.Alive{}, "alive/b": record.Alive{}}
	r := &Runner{}
	a := &address{addr: at.Addr(), key: "addrs/192.0.2.10", machine: vip.New("a", at.Addr(), 0, vip.Env{})}
	revision := int64(0)
	update := func(changed ...string) (read []string) {
		revision++
		var all []kv.Entry
		for key, v := range records {
			all = append(all, kv.Entry{Key: key, Value: record.Encode(v), Revision: revision})
		}
		s := &counted{Snapshot: kv.NewTable(revision, all)}
		r.snapshot = s
		r.learn(a, r.members.Update(kv.Update{Snapshot: s, Changed: changed}))
		return s.read
	}
	update("addrs/192.0.2.10", "alive/a", "alive/b", "nodes/a", "nodes/b")
	if n := a.view.Nodes; len(n.Candidates) != 2 || len(n.Able) != 2 {
		t.Fatalf("the nodes are %+v", n)
	}
	rec.Sequence++
	records[a.key] = rec
	if read := update(a.key); !slices.Equal(read, []string{a.key}) || a.rec.Sequence != rec.Sequence {
		t.Errorf("after a renewal, %q was read: the sequence is %d, want %d", read, a.rec.Sequence, rec.Sequence)
	}
	records["alive/b"] = record.Alive{Unable: map[netip.Addr]string{at.Addr(): "link eth0 has no carrier"}}
	if update("alive/b"); !slices.Equal(a.view.Nodes.Able, []string{"a"}) {
		t.Errorf("node b is not able, and the nodes are %+v", a.view.Nodes)
	}
	rec.Candidates = []string{"b"}
	records[a.key] = rec
	if update(a.key); !slices.Equal(a.view.Nodes.Candidates, []string{"b"}) {
		t.Errorf("node b is the only candidate, and the nodes are %+v", a.view.Nodes)
	}
}
