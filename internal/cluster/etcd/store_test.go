package etcd_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"fairlead/internal/api"
	"fairlead/internal/cluster/etcd"
	"fairlead/internal/cluster/kv"
	etcdtest "fairlead/test/etcd"
	"fairlead/test/place"
)

// world is an etcd and a store that uses it.
type world struct {
	*testing.T
	*etcdtest.Cluster
	in place.Place
}

func newWorld(t *testing.T, members int) *world {
	t.Helper()
	cluster, ns := etcdtest.Alone(t, members)
	return &world{t, cluster, ns.Do}
}

// open opens a store that ends with the test.
func (w *world) open(access api.EtcdAccess) *etcd.Store {
	w.Helper()
	access.Endpoints = w.Endpoints()
	s, err := etcd.Open(etcd.Config{Access: access, Cluster: "test", Silence: time.Second,
		Dial: func(_ context.Context, address string) (net.Conn, error) {
			return place.Dial(w.in, "tcp", address, time.Second)
		}})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := s.Close(); err != nil {
			w.Error(err)
		}
	})
	return s
}

// commit puts a key within a time.
func commit(s *etcd.Store, key string, limit time.Duration, leased bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err := s.Commit(ctx, kv.Txn{Then: []kv.Change{{Key: key, Value: []byte("1"), Leased: leased}}})
	return err
}

// has reports whether etcd has the key.
func (w *world) has(s *etcd.Store, key string) bool {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), place.Timeout)
	defer cancel()
	for {
		result, err := s.Commit(ctx, kv.Txn{If: []kv.Condition{{Key: key}}})
		if err == nil {
			return !result.Committed
		}
		if ctx.Err() != nil {
			w.Fatal(err)
		}
	}
}

// TestOutcome checks the errors of transactions that etcd does not answer, and whether it has
// committed them.
func TestOutcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	s, m := w.open(api.EtcdAccess{}), w.Members[0]
	const lost = 3 * time.Second // longer than a busy machine pauses etcd
	for _, test := range []struct {
		name       string
		begin, end func()
		limit      time.Duration
		want       error
		committed  bool
	}{
		{"answer lost", func() { m.CutClients(etcdtest.FromIt) }, m.Heal, lost, kv.ErrUnknown, true},
		{"request lost", func() { m.CutClients(etcdtest.ToIt) }, m.Heal, lost, kv.ErrUnknown, false},
		{"refused", func() {
			m.Kill()
			_ = commit(s, "refused", time.Second, false) // it may find the connection open: unknown
		}, m.Start, 500 * time.Millisecond, kv.ErrUnavailable, false},
	} {
		if err := commit(s, "before", place.Timeout, false); err != nil {
			t.Fatal(err)
		}
		test.begin()
		err := commit(s, test.name, test.limit, false)
		if test.name == "request lost" { // TCP must not deliver it later
			m.Kill()
			m.Start()
		}
		if !errors.Is(err, test.want) {
			t.Errorf("%s: the error is %v, want %v", test.name, err, test.want)
		}
		test.end()
		if got := w.has(s, test.name); got != test.committed {
			t.Errorf("%s: committed %v, want %v", test.name, got, test.committed)
		}
	}
}

// TestFailover lets the server in use fail in several ways. The transaction after the one that
// notices it must be committed by another server.
func TestFailover(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	s := w.open(api.EtcdAccess{})
	for _, m := range w.Members {
		for name, fault := range map[string]struct{ begin, end func() }{
			"killed":  {m.Kill, m.Start},
			"stopped": {m.Stop, m.Continue},
			"cut off": {func() { m.CutClients(etcdtest.Both) }, m.Heal},
		} {
			fault.begin()
			w.has(s, name)
			fault.end()
		}
	}
}

// TestLease ends the lease of a process. Its next leased key gets another one.
func TestLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	s := w.open(api.EtcdAccess{})
	if err := commit(s, "alive/a", place.Timeout, true); err != nil {
		t.Fatal(err)
	}
	client := etcdtest.Client(t, w.Members[0])
	leases, err := client.Leases(t.Context())
	if err != nil || len(leases.Leases) != 1 {
		t.Fatalf("etcd has the leases %v, %v", leases, err)
	}
	if _, err := client.Revoke(t.Context(), leases.Leases[0].ID); err != nil {
		t.Fatal(err)
	}
	if w.has(s, "alive/a") {
		t.Error("the leased key is still there")
	}
	if err := commit(s, "alive/a", place.Timeout, true); err != nil || !w.has(s, "alive/a") {
		t.Errorf("no new lease: %v", err)
	}
}

// TestPassword uses an etcd that wants a password, before and after it wants one.
func TestPassword(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	right, wrong := w.open(api.EtcdAccess{User: "root", Password: "secret"}),
		w.open(api.EtcdAccess{User: "root", Password: "guess"})
	if err := commit(right, "a", place.Timeout, false); err != nil {
		t.Fatal(err)
	}
	enableAuth(t, etcdtest.Client(t, w.Members[0]))
	if err := commit(right, "b", place.Timeout, true); err != nil {
		t.Errorf("the right password: %v", err)
	}
	err := commit(wrong, "c", place.Timeout, false)
	if err == nil || errors.Is(err, kv.ErrUnavailable) || errors.Is(err, kv.ErrUnknown) {
		t.Errorf("the wrong password: %v", err)
	}
	w.Members[0].Kill() // it forgets tokens
	w.Members[0].Start()
	if !w.has(right, "b") || w.has(right, "c") {
		t.Error("etcd does not have exactly what was committed")
	}
}

func enableAuth(t *testing.T, c *clientv3.Client) {
	t.Helper()
	_, err := c.UserAdd(t.Context(), "root", "secret")
	if err == nil {
		_, err = c.RoleAdd(t.Context(), "root")
	}
	if err == nil {
		_, err = c.UserGrantRole(t.Context(), "root", "root")
	}
	if err == nil {
		_, err = c.AuthEnable(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestServers describes a server that answers and one that does not.
func TestServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	s := w.open(api.EtcdAccess{})
	w.Leader().Kill()
	w.Leader()
	for end := time.Now().Add(place.Timeout); ; { // a busy machine may pause a server, and so make another one the leader
		leaders, silent := 0, 0
		for _, server := range s.Servers(t.Context()) {
			switch {
			case server.Problem != "":
				silent++
			case server.Leader:
				leaders++
			}
			if server.Problem == "" && (server.Version == "" || server.Size == 0) {
				t.Errorf("a server is described as %+v", server)
			}
		}
		if leaders == 1 && silent == 1 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d servers are leaders and %d do not answer, want 1 and 1", leaders, silent)
		}
	}
}

// TestWarnings checks which versions have known faults.
func TestWarnings(t *testing.T) {
	for version, want := range map[string]int{"3.4.23": 5, "3.5.12": 5, "3.5.16": 4, "3.5.32": 1, "3.5.33": 0,
		"3.6.0": 3, "3.6.13": 1, "3.6.14": 0, "3.7.0": 0, "4.0.0": 0, "": 0} {
		got := etcd.Warnings(version)
		named := len(got) + strings.Count(strings.Join(got, ""), "; ")
		if named != want {
			t.Errorf("etcd %s: %q, want %d faults", version, got, want)
		}
	}
}

// TestOpenRefuses checks the errors of a wrong configuration.
func TestOpenRefuses(t *testing.T) {
	url := []string{"https://192.0.2.1:2379"}
	for name, cfg := range map[string]etcd.Config{
		"no server":       {Cluster: "test"},
		"no port":         {Cluster: "test", Access: api.EtcdAccess{Endpoints: []string{"https://192.0.2.1"}}},
		"no scheme":       {Cluster: "test", Access: api.EtcdAccess{Endpoints: []string{"192.0.2.1:2379"}}},
		"no cluster":      {Access: api.EtcdAccess{Endpoints: url}},
		"two clusters":    {Cluster: "a/b", Access: api.EtcdAccess{Endpoints: url}},
		"CA":              {Cluster: "test", Access: api.EtcdAccess{Endpoints: url, CA: "x"}},
		"certificate":     {Cluster: "test", Access: api.EtcdAccess{Endpoints: url, Certificate: "x", Key: "x"}},
		"key without one": {Cluster: "test", Access: api.EtcdAccess{Endpoints: url, Key: "x"}},
	} {
		if s, err := etcd.Open(cfg); err == nil {
			t.Errorf("%s: no error", name)
			s.Close()
		}
	}
}
