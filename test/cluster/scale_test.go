package cluster_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"fairlead/internal/cluster/record"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/test/etcd"
	"fairlead/test/place"
	"fairlead/test/process"
)

// nodesAsked is the environment variable with the number of simulated nodes of TestManyNodes. With it, the test
// fails if the daemon uses more than these limits.
const (
	nodesAsked  = "FAIRLEAD_NODES"
	memoryLimit = 150.0 // MB
	cpuLimit    = 3.0   // percent of a core
	resyncLimit = 5 * time.Second
)

// The endpoints of each simulated node, and how often one of them changes.
const (
	endpointsOfNode = 50
	changeEvery     = 100 * time.Millisecond
)

// population is a number of nodes that exist only as records.
type population struct {
	*lan
	client *clientv3.Client
	nodes  int
	// own is the address of the real node's sandbox.
	own netip.Addr
	// changes is how many endpoints change.
	changes int
	// limited is true if the daemon must not use more than the limits.
	limited bool
}

// TestManyNodes gives a cluster many nodes that exist only as records, each with a block of an overlay and 50
// endpoints, while ten endpoints per second change. The real node answers for names of new endpoints, and the
// changes make it neither write nor read. Then etcd is compacted while the daemon is stopped, and the daemon reads
// all records again. FAIRLEAD_NODES=1000 simulates 1,000 nodes, and the test logs and limits what the real one uses.
func TestManyNodes(t *testing.T) {
	nodes, changes := 20, 20
	text := os.Getenv(nodesAsked)
	if text != "" {
		var err error
		if nodes, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		changes = 300
	}
	l := newLAN(t)
	l.init()
	h := l.hosts[0]
	kerneltest.Run(t, h.ns, "ip", "route", "add", "198.18.0.0/15", "dev", "eth0")
	h.Run("network", "create", "shop", "--cluster", "--driver", "vxlan", "--subnet", "10.64.0.0/12")
	l.until("host1 has the network", h.has)
	b := l.box(h)
	c := population{l, etcd.Client(t, l.etcd.Members[0]), nodes, b.addr, changes, text != ""}
	c.log("alone", h)
	c.fill()
	last := box{name: c.name(nodes-1, endpointsOfNode-1, 0), addr: c.address(nodes-1, endpointsOfNode-1)}
	from := time.Now()
	l.until("host1 has all nodes", func() bool { return slices.Contains(l.lookUp(b, last), last.addr.String()) })
	t.Logf("host1 resolves the last name after %s", time.Since(from).Round(time.Millisecond))
	c.log("after all nodes have come", h)
	c.change(h, b)
	c.within("MB of memory while endpoints change", c.log("at the end", h), memoryLimit)
	c.resync(h, b)
	from = time.Now()
	h.Stop()
	h.Start()
	t.Logf("the daemon is ready %s after its end is requested", time.Since(from).Round(time.Millisecond))
	l.until("host1 has all nodes again", func() bool { return slices.Contains(l.lookUp(b, last), last.addr.String()) })
	c.log("after a restart", h)
}

// root is the prefix of the records of the cluster.
const root = "/fairlead/v1/default/"

// id returns the id of a simulated node, which is its name, too.
func (c population) id(node int) string { return fmt.Sprintf("node%04d", node) }

// block returns the block of a simulated node. The real node's block is in another /16.
func (c population) block(node int) netip.Prefix {
	second := 65 + c.own.As4()[1]%2
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, second, byte(node >> 2), byte(node << 6)}), 26)
}

// address returns the address of an endpoint.
func (c population) address(node, endpoint int) netip.Addr {
	a := c.block(node).Addr().As4()
	a[3] += byte(endpoint + 2)
	return netip.AddrFrom4(a)
}

// name returns the name of an endpoint in a version of its record.
func (c population) name(node, endpoint, version int) string {
	return fmt.Sprintf("web-%d-%d-%d", node, endpoint, version)
}

// put is the operation that writes a version of an endpoint.
func (c population) put(node, endpoint, version int) clientv3.Op {
	return clientv3.OpPut(root+record.Key(record.Endpoints, "shop", c.id(node), fmt.Sprint("web", endpoint)),
		string(record.Encode(record.Endpoint{Names: []string{c.name(node, endpoint, version)},
			Addresses: []netip.Addr{c.address(node, endpoint)}})))
}

// fill writes the records of all simulated nodes.
func (c population) fill() {
	c.Helper()
	for n := range c.nodes {
		ops := []clientv3.Op{
			clientv3.OpPut(root+record.Nodes+c.id(n), string(record.Encode(record.Node{ID: c.id(n), Name: c.id(n),
				Addresses: []netip.Addr{netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)})}}))),
			clientv3.OpPut(root+record.Alives+c.id(n), string(record.Encode(record.Alive{}))),
			clientv3.OpPut(root+record.Key(record.Blocks, "shop", c.block(n).String()),
				string(record.Encode(record.Block{Node: c.id(n)})))}
		for e := range endpointsOfNode {
			ops = append(ops, c.put(n, e, 0))
		}
		c.commit(ops...)
	}
}

func (c population) commit(ops ...clientv3.Op) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), place.Timeout)
	defer cancel()
	if _, err := c.client.Txn(ctx).Then(ops...).Commit(); err != nil {
		c.Fatal(err)
	}
}

// change changes ten endpoints per second, and waits until the host answers for the name of the last one. The
// test fails if the host has asked etcd for more than one thing per change, or has written anything.
func (c population) change(h *host, b box) {
	c.Helper()
	member := c.etcd.Members[0]
	before, cpu, from := member.Requests(), process.CPU(c, h.PID()), time.Now()
	var last box
	for i := range c.changes {
		node := i * 37 % c.nodes
		c.commit(c.put(node, 7, i+1))
		last.name, last.addr = c.name(node, 7, i+1), c.address(node, 7)
		time.Sleep(time.Until(from.Add(time.Duration(i+1) * changeEvery)))
	}
	took := time.Since(from).Seconds()
	c.resolves(b, last)
	after := member.Requests()
	reads := after["Range"] - before["Range"]
	writes := after["Put"] + after["Txn"] - before["Put"] - before["Txn"] - float64(c.changes)
	used := (process.CPU(c, h.PID()) - cpu) / took * 100
	c.Logf("%d changes in %.1f s: the daemon used %.1f %% of a core, read %.0f times and wrote %.0f times", c.changes,
		took, used, reads, writes)
	c.within("percent of a core while endpoints change", used, cpuLimit)
	if reads > float64(c.changes) || writes > 0 {
		c.Errorf("%d changes of endpoints cost %.0f reads and %.0f writes", c.changes, reads, writes)
	}
}

// resync stops the daemon, changes an endpoint of each simulated node, and compacts and restarts etcd. The daemon
// cannot get the changes one by one afterwards. It must have them soon after it continues.
func (c population) resync(h *host, b box) {
	c.Helper()
	resume := h.Pause()
	for n := range c.nodes {
		c.commit(c.put(n, 9, 1))
	}
	c.etcd.Compact()
	c.etcd.Members[0].Kill()
	c.etcd.Members[0].Start()
	c.etcd.Leader()
	from := time.Now()
	resume()
	for _, n := range []int{0, c.nodes - 1} {
		c.resolves(b, box{name: c.name(n, 9, 1), addr: c.address(n, 9)})
	}
	took := time.Since(from)
	c.Logf("host1 resolves the changed names %s after it continues", took.Round(time.Millisecond))
	c.within("seconds until changed names are resolved after compaction", took.Seconds(), resyncLimit.Seconds())
}

// within fails the test if the daemon uses more than a limit, if the environment variable asks for that.
func (c population) within(what string, used, limit float64) {
	c.Helper()
	if c.limited && used > limit {
		c.Errorf("%s: %.1f, want at most %.1f", what, used, limit)
	}
}

// log logs the memory of the host's daemon, and returns it in MB.
func (c population) log(when string, h *host) float64 {
	c.Helper()
	now := process.Memory(c, h.PID(), "VmRSS")
	c.Logf("memory of the daemon %s: %.0f MB, at most %.0f MB", when, now, process.Memory(c, h.PID(), "VmHWM"))
	return now
}
