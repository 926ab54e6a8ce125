package etcd

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"fairlead/test/place"
	"fairlead/test/shell"
)

// dialOptions lets a client of etcd connect from a place.
func dialOptions(from place.Place) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		limit := place.Timeout
		if end, ok := ctx.Deadline(); ok {
			limit = time.Until(end)
		}
		return place.Dial(from, "tcp", addr, limit)
	})}
}

// Wipe kills all members and starts them without data.
func (c *Cluster) Wipe() {
	c.t.Helper()
	c.replace(func(m *Member) {})
}

// replace kills all members, deletes their data, and starts them with other data.
func (c *Cluster) replace(fill func(*Member)) {
	c.t.Helper()
	for _, m := range c.Members {
		m.Kill()
	}
	for _, m := range c.Members {
		if err := os.RemoveAll(m.data); err != nil {
			c.t.Fatal(err)
		}
		fill(m)
		m.Start()
	}
	c.Leader()
}

// Copy is a copy of the data of all members at one moment.
type Copy struct{ dir string }

// Save copies the data of all members. The members are stopped meanwhile.
func (c *Cluster) Save() Copy {
	c.t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "fairlead-etcd-")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the machine's memory, if it fails
	for _, m := range c.Members {
		m.Kill()
	}
	for _, m := range c.Members {
		c.copy(m.data, filepath.Join(dir, m.Host))
	}
	for _, m := range c.Members {
		m.Start()
	}
	c.Leader()
	return Copy{dir}
}

// Restore kills all members and starts them with older data.
func (c *Cluster) Restore(from Copy) {
	c.t.Helper()
	c.replace(func(m *Member) { c.copy(filepath.Join(from.dir, m.Host), m.data) })
}

func (c *Cluster) copy(from, to string) {
	c.t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		c.t.Fatalf("copy data of etcd: %v\n%s", err, out)
	}
}

// Compact deletes all revisions before the newest one.
func (c *Cluster) Compact() {
	c.t.Helper()
	client := Client(c.t, c.Leader())
	ctx, cancel := context.WithTimeout(context.Background(), place.Timeout)
	defer cancel()
	now, err := client.Get(ctx, "compact")
	if err == nil {
		_, err = client.Compact(ctx, now.Header.Revision)
	}
	if err != nil {
		c.t.Fatalf("compact etcd: %v", err)
	}
}

// Direction is which packets of a member a cut drops.
type Direction string

// The directions of a cut.
const (
	Both   Direction = "both"
	ToIt   Direction = "to it"
	FromIt Direction = "from it"
)

// CutClients drops the packets between the member and its clients, until Heal is called. The
// members still reach each other.
func (m *Member) CutClients(d Direction) {
	m.t.Helper()
	table := m.table()
	rules := "add table ip " + table +
		"; add chain ip " + table + " in { type filter hook input priority -300; }" +
		"; add chain ip " + table + " out { type filter hook output priority -300; }"
	if d != FromIt {
		rules += "; add rule ip " + table + " in ip daddr " + m.Host + " tcp dport 2379 drop"
	}
	if d != ToIt {
		rules += "; add rule ip " + table + " out ip saddr " + m.Host + " tcp sport 2379 drop"
	}
	shell.Run(m.t, m.In, "nft '"+rules+"'")
}

func (m *Member) table() string { return "etcd_" + strings.ReplaceAll(m.Host, ".", "_") }

// Heal ends CutClients.
func (m *Member) Heal() {
	m.t.Helper()
	shell.Run(m.t, m.In, "nft delete table ip "+m.table())
}

// Change replaces the value of a key by what do returns for it, in one transaction. The value of a
// key that does not exist is nil.
func (m *Member) Change(key string, do func(value []byte) []byte) {
	m.t.Helper()
	client := Client(m.t, m)
	ctx, cancel := context.WithTimeout(context.Background(), place.Timeout)
	defer cancel()
	for {
		got, err := client.Get(ctx, key)
		if err != nil {
			m.t.Fatalf("read %s: %v", key, err)
		}
		var value []byte
		revision := int64(0)
		if len(got.Kvs) > 0 {
			value, revision = got.Kvs[0].Value, got.Kvs[0].ModRevision
		}
		done, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpPut(key, string(do(value)))).Commit()
		if err != nil {
			m.t.Fatalf("change %s: %v", key, err)
		}
		if done.Succeeded {
			return
		}
	}
}

// Value returns the value of a key; nil if it does not exist.
func (m *Member) Value(key string) []byte {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), place.Timeout)
	defer cancel()
	got, err := Client(m.t, m).Get(ctx, key)
	if err != nil {
		m.t.Fatalf("read %s: %v", key, err)
	}
	for _, pair := range got.Kvs {
		return pair.Value
	}
	return nil
}
