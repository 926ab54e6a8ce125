package etcd_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"fairlead/test/etcd"
	"fairlead/test/place"
)

// value returns the value of a key, or an empty text if it does not exist.
func value(t *testing.T, c *clientv3.Client, key string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), place.Timeout)
	defer cancel()
	r, err := c.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) == 0 {
		return ""
	}
	return string(r.Kvs[0].Value)
}

func put(t *testing.T, c *clientv3.Client, key, value string) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), place.Timeout)
	defer cancel()
	r, err := c.Put(ctx, key, value)
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}

// TestFaults checks what each fault does to one member's data and answers.
func TestFaults(t *testing.T) {
	c, _ := etcd.Alone(t, 1)
	m := c.Members[0]
	client := etcd.Client(t, m)
	put(t, client, "a", "1")
	m.Kill()
	m.Start()
	if got := value(t, client, "a"); got != "1" {
		t.Errorf("after a restart the value is %q", got)
	}
	saved := c.Save()
	put(t, client, "a", "2")
	c.Compact()
	c.Restore(saved)
	if got := value(t, client, "a"); got != "1" {
		t.Errorf("after a restore the value is %q", got)
	}
	c.Wipe()
	if got := value(t, client, "a"); got != "" {
		t.Errorf("after a wipe the value is %q", got)
	}
	for name, fault := range map[string]struct{ begin, end func() }{
		"stopped":     {m.Stop, m.Continue},
		"cut off":     {func() { m.CutClients(etcd.Both) }, m.Heal},
		"not reached": {func() { m.CutClients(etcd.ToIt) }, m.Heal},
		"not heard":   {func() { m.CutClients(etcd.FromIt) }, m.Heal},
	} {
		fault.begin()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if _, err := client.Get(ctx, "a"); err == nil {
			t.Errorf("%s: etcd answers", name)
		}
		cancel()
		fault.end()
		value(t, client, "a")
	}
}

// TestLeader kills the leader of three members. Another one becomes the leader, and the killed one
// catches up.
func TestLeader(t *testing.T) {
	c, _ := etcd.Alone(t, 3)
	first := c.Leader()
	put(t, etcd.Client(t, c.Members...), "a", "1")
	first.Kill()
	second := c.Leader()
	if first == second {
		t.Fatal("the killed member is the leader")
	}
	put(t, etcd.Client(t, second), "a", "2")
	first.Start()
	if got := value(t, etcd.Client(t, first), "a"); got != "2" {
		t.Errorf("the restarted member answers %q", got)
	}
}
