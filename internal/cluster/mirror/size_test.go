package mirror_test

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"fairlead/internal/child"
	"fairlead/internal/cluster/mirror"
	"fairlead/internal/cluster/record"
	etcdtest "fairlead/test/etcd"
	"fairlead/test/place"
	"fairlead/test/process"
)

// The size of the simulated cluster, and how often it changes.
const (
	nodes, endpoints = 1000, 50
	changes, every   = 200, 100 * time.Millisecond
	root             = "/fairlead/v1/test/"
)

// BenchmarkFollow follows a cluster of 1,000 nodes with 50 endpoints each in a process of its own,
// while ten endpoints per second change. It reports what the process uses, what each change asks of
// etcd, and how long the process needs after it was cut off and the history was compacted.
func BenchmarkFollow(b *testing.B) {
	c, _ := etcdtest.Alone(b, 1)
	m := c.Members[0]
	client := etcdtest.Client(b, m)
	fillEtcd(b, client)
	f := startFollower(b, m, filepath.Join(b.TempDir(), "cluster.db"))
	for b.Loop() {
		f.until(put(b, client, -1))
		before, seconds, from := m.Requests(), f.cpu(), time.Now()
		for i := range changes {
			f.until(put(b, client, i))
			time.Sleep(time.Until(from.Add(time.Duration(i+1) * every)))
		}
		after := m.Requests()
		b.ReportMetric((f.cpu()-seconds)/time.Since(from).Seconds()*100, "cpu-%")
		b.ReportMetric(f.memory("VmRSS"), "rss-MB")
		b.ReportMetric(f.memory("VmHWM"), "peak-rss-MB")
		b.ReportMetric((after["Range"]-before["Range"])/changes, "reads/change")
		b.ReportMetric((after["Put"]+after["Txn"]-before["Put"]-before["Txn"]-changes)/changes, "writes/change")

		f.signal(syscall.SIGSTOP)
		m.Kill()
		m.Start()
		c.Leader()
		for i := range changes {
			put(b, client, 1000+i)
		}
		last := put(b, client, -2)
		c.Compact()
		from = time.Now()
		f.signal(syscall.SIGCONT)
		f.until(last)
		b.ReportMetric(time.Since(from).Seconds(), "resync-s")
		b.ReportMetric(f.memory("VmHWM"), "resync-peak-rss-MB")
	}
}

// endpointKey returns the key of one endpoint of a node.
func endpointKey(node, endpoint int) string {
	return root + record.Key(record.Endpoints, "n", fmt.Sprintf("node%04d", node), fmt.Sprintf("%032x", endpoint))
}

// endpointValue returns a record with a name that contains the version.
func endpointValue(node, endpoint int, version string) string {
	return string(record.Encode(record.Endpoint{Names: []string{fmt.Sprintf("web-%d-%s", endpoint, version)},
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(node >> 8), byte(node), byte(endpoint + 2)})},
		MAC:       fmt.Sprintf("02:00:00:%02x:%02x:%02x", node>>8, node&255, endpoint)}))
}

// put changes one endpoint, and returns the revision.
func put(b *testing.B, client *clientv3.Client, version int) int64 {
	b.Helper()
	node := (version + nodes) * 37 % nodes
	ctx, cancel := context.WithTimeout(b.Context(), place.Timeout)
	defer cancel()
	r, err := client.Put(ctx, endpointKey(node, 7), endpointValue(node, 7, fmt.Sprint("v", version)))
	if err != nil {
		b.Fatal(err)
	}
	return r.Header.Revision
}

// fillEtcd writes all records of the cluster.
func fillEtcd(b *testing.B, client *clientv3.Client) {
	b.Helper()
	commit := func(ops ...clientv3.Op) {
		if _, err := client.Txn(b.Context()).Then(ops...).Commit(); err != nil {
			b.Fatal(err)
		}
	}
	commit(clientv3.OpPut(root+record.MetaKey, string(record.Encode(record.Meta{ID: "one", Name: "test",
		Format: record.Format}))),
		clientv3.OpPut(root+record.Key(record.Networks, "n"), string(record.Encode(record.Network{}))))
	for n := range nodes {
		id := fmt.Sprintf("node%04d", n)
		address := netip.AddrFrom4([4]byte{192, 168, byte(n >> 8), byte(n)})
		ops := []clientv3.Op{
			clientv3.OpPut(root+record.Nodes+id, string(record.Encode(record.Node{ID: id, Name: id,
				Addresses: []netip.Addr{address}}))),
			clientv3.OpPut(root+record.Alives+id, string(record.Encode(record.Alive{}))),
			clientv3.OpPut(root+fmt.Sprintf("%sn/10.%d.%d.0-24", record.Blocks, n>>8, n&255),
				string(record.Encode(record.Block{Node: id})))}
		for e := range endpoints {
			ops = append(ops, clientv3.OpPut(endpointKey(n, e), endpointValue(n, e, "v")))
		}
		commit(ops...)
	}
}

// follower is a process with a mirror.
type follower struct {
	b     *testing.B
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startFollower(b *testing.B, m *etcdtest.Member, path string) *follower {
	b.Helper()
	f := &follower{b: b, cmd: child.Self("follower")}
	f.cmd.Env = append(f.cmd.Env, mirror.FollowsEtcd+"="+m.Endpoint(), mirror.FollowerFile+"="+path)
	f.cmd.Stderr = os.Stderr
	out, err := f.cmd.StdoutPipe()
	if err == nil {
		err = m.In(f.cmd.Start)
	}
	if err != nil {
		b.Fatal(err)
	}
	f.lines = bufio.NewScanner(out)
	b.Cleanup(func() {
		_ = f.cmd.Process.Kill() // Wait reports it
		_ = f.cmd.Wait()
	})
	return f
}

// until waits until the follower has a revision.
func (f *follower) until(revision int64) {
	f.b.Helper()
	for f.lines.Scan() {
		if n, err := strconv.ParseInt(f.lines.Text(), 10, 64); err != nil || n >= revision {
			if err != nil {
				f.b.Fatal(err)
			}
			return
		}
	}
	f.b.Fatal("the follower has ended")
}

func (f *follower) signal(s syscall.Signal) {
	f.b.Helper()
	if err := f.cmd.Process.Signal(s); err != nil {
		f.b.Fatal(err)
	}
}

// cpu returns how many seconds of a processor the process has used.
func (f *follower) cpu() float64 { return process.CPU(f.b, f.cmd.Process.Pid) }

// memory returns a field of the process's status, in MB.
func (f *follower) memory(field string) float64 { return process.Memory(f.b, f.cmd.Process.Pid, field) }
