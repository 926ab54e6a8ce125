package member_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/record"
)

// access returns how the host reaches etcd after a restart.
func (h *host) access() api.EtcdAccess {
	h.Helper()
	text, err := os.ReadFile(filepath.Join(h.dir, "member.json"))
	var f struct{ Access api.EtcdAccess }
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		h.Fatal(err)
	}
	return f.Access
}

// TestSetEtcd changes how a node reaches etcd. Another etcd is refused, and changes nothing. With the new access the
// node goes on, and a node that joins there gets it.
func TestSetEtcd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.host(1), w.host(2)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	one.knows("host1")
	const empty, other, moved = "https://198.51.100.1:2379", "https://198.51.100.2:2379", "https://198.51.100.3:2379"
	foreign := kvtest.New()
	meta := record.Encode(record.Meta{ID: "other", Name: "default", Format: record.Format})
	_, err := foreign.Client().Commit(t.Context(), kv.Txn{Then: []kv.Change{{Key: record.MetaKey, Value: meta}}})
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.elsewhere[empty], w.elsewhere[other], w.elsewhere[moved] = kvtest.New(), foreign, w.store
	w.mu.Unlock()
	at := func(url string) api.EtcdAccess {
		return api.EtcdAccess{Endpoints: []string{url}, User: "fairlead", Password: "secret"}
	}
	first := one.access()
	one.refuses("an empty etcd", one.SetEtcd(t.Context(), at(empty)), api.Conflict, "no cluster default")
	one.refuses("another cluster", one.SetEtcd(t.Context(), at(other)), api.Conflict, "another cluster default")
	one.refuses("no URL", one.SetEtcd(t.Context(), api.EtcdAccess{}), api.Invalid, "want the URL")
	two.refuses("a host without a cluster", two.SetEtcd(t.Context(), at(moved)), api.NotFound, "belongs to no cluster")
	if now := one.access(); !slices.Equal(now.Endpoints, first.Endpoints) || now.User != "" {
		t.Errorf("a refused access is stored: %+v", now)
	}
	if err := one.SetEtcd(t.Context(), at(moved)); err != nil {
		t.Fatal(err)
	}
	one.client.Set(kvtest.Refused) // the earlier access has ended
	if now := one.access(); now.Endpoints[0] != moved || now.User != "fairlead" || now.Password != "secret" {
		t.Errorf("the stored access is %+v", now)
	}
	w.put("nets/after", record.Network{})
	one.has("nets/after")
	if one.left {
		t.Error("the host has left the cluster")
	}
	if err := two.join(one.token(api.ClusterTokenRequest{})); err != nil {
		t.Fatal(err)
	}
	if now := two.access(); now.Endpoints[0] != moved {
		t.Errorf("a node that joins gets the access %+v", now)
	}
}

// TestSetEtcdWhileBusy changes how a node reaches etcd while its host applies records, which can take longer than a
// virtual address is held. The node commits transactions all the time, so it goes on renewing its addresses. Its
// leased record is written by the new connection, which renews the lease.
func TestSetEtcdWhileBusy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.host(1)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	one.knows("host1")
	const moved = "https://198.51.100.3:2379"
	busy, free := make(chan struct{}), make(chan struct{})
	wait := sync.OnceFunc(func() { close(busy); <-free })
	w.mu.Lock()
	w.elsewhere[moved] = w.store
	one.consume = func(u kv.Update) {
		if _, changed := u.Snapshot.Get("nets/new"); changed {
			wait()
		}
	}
	w.mu.Unlock()
	w.until("the record of the node", func() bool { return one.leased() })
	w.put("nets/new", record.Network{})
	<-busy
	changed := make(chan error, 1)
	go func() { changed <- one.SetEtcd(t.Context(), api.EtcdAccess{Endpoints: []string{moved}}) }()
	renew := kv.Txn{Then: []kv.Change{{Key: "addrs/192.0.2.10", Value: []byte("{}")}}}
	end := time.After(limit)
	for done := false; !done; {
		select {
		case err := <-changed:
			if err != nil {
				t.Fatal(err)
			}
			done = true
		case <-end:
			t.Fatal("the access does not change while the host is busy")
		default:
		}
		if _, err := one.CommitAnyway(t.Context(), renew); err != nil {
			t.Fatalf("a renewal failed: %v", err)
		}
	}
	close(free)
	one.client.EndLease() // nothing renews it any more
	w.until("the record of the node, leased by the new connection", func() bool { return one.leased() })
}

// leased reports whether the store has the host's leased record.
func (h *host) leased() bool {
	_, alive := h.store.Snapshot().Get(record.Key(record.Alives, h.id()))
	return alive
}
