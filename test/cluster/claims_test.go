package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/block"
	store "fairlead/internal/cluster/etcd"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
	"fairlead/test/etcd"
	"fairlead/test/place"
)

// TestClaims lets 16 nodes claim blocks of a real etcd at the same time, from a snapshot without blocks.
// No two get the same block.
func TestClaims(t *testing.T) {
	const nodes, each = 16, 2
	servers, ns := etcd.Alone(t, 1)
	s, err := store.Open(store.Config{Access: api.EtcdAccess{Endpoints: servers.Endpoints()}, Cluster: "claims",
		Dial: func(_ context.Context, address string) (net.Conn, error) {
			return place.Dial(ns.Do, "tcp", address, place.Timeout)
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	network := model.Network{Name: "net", Driver: model.DriverVXLAN,
		Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.9.0.0/22")}}}
	old := kv.NewTable(0, nil)
	if err := block.Create(t.Context(), s, old, network, []int{30}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	holders := map[netip.Prefix]string{}
	var all sync.WaitGroup
	for i := range nodes {
		id := fmt.Sprint("n", i)
		if _, err := s.Commit(t.Context(), kv.Txn{Then: []kv.Change{{Key: record.Key(record.Nodes, id),
			Value: record.Encode(record.Node{ID: id})}}}); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			snapshot := read(t, s, record.Key(record.Nodes, id), record.Key(record.Networks, "net"))
			for range each {
				p, err := block.Claim(t.Context(), s, snapshot, "net", id, 0)
				mu.Lock()
				if other, taken := holders[p]; err != nil || taken {
					t.Errorf("%s gets %s of %q: %v", id, p, other, err)
				}
				holders[p] = id
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for p, id := range holders {
		key := record.Key(record.Blocks, "net", p.String())
		b, known, err := record.Get[record.Block](read(t, s, key), key)
		if err != nil || !known || b.Node != id {
			t.Errorf("etcd has block %s of %+v, and %s has claimed it: %v", p, b, id, err)
		}
	}
}

// read returns a snapshot with these keys only.
func read(t *testing.T, s kv.Committer, keys ...string) kv.Snapshot {
	t.Helper()
	txn := kv.Txn{If: []kv.Condition{{Key: "absent", Revision: 1}}} // so that the store answers with the others
	for _, key := range keys {
		txn.If = append(txn.If, kv.Condition{Key: key})
	}
	for end := time.Now().Add(30 * time.Second); ; {
		result, err := s.Commit(t.Context(), txn)
		if err == nil {
			return kv.NewTable(result.Revision, result.Current)
		}
		if !errors.Is(err, kv.ErrUnknown) && !errors.Is(err, kv.ErrUnavailable) || time.Now().After(end) {
			t.Error(err)
			return kv.NewTable(0, nil)
		}
	}
}
