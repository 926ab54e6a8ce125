package cluster_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/test/daemons"
	"fairlead/test/shell"
)

// reportLimit is how soon all other nodes must show a clone or an address that is gone. It is checked only if
// FAIRLEAD_CLONES is set: on a busy machine, each command can take that long.
const reportLimit = 5 * time.Second

// firstClone is the last byte of the first clone's address in 192.0.2.0/24.
const firstClone = 30

// clones is three hosts with a virtual address, copies of their states, and further hosts for these.
type clones struct {
	*virtual
	*watcher
	// saved are the directories with the copies, by host.
	saved map[*host]string
	// all are the hosts for clones, and free those of them that have not run a daemon yet.
	all, free []*host
	// slowest is the longest time until all other nodes have shown something.
	slowest time.Duration
}

// counted returns the number in FAIRLEAD_CLONES, and whether it is set.
func counted(t *testing.T, short int) (int, bool) {
	t.Helper()
	text := os.Getenv("FAIRLEAD_CLONES")
	if text == "" {
		return short, false
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("FAIRLEAD_CLONES: %v", err)
	}
	return n, true
}

func newClones(t *testing.T, count int) *clones {
	t.Helper()
	c := &clones{virtual: newVirtual(t, "192.0.2.10/24", faultHold), saved: map[*host]string{}}
	nodes := c.lan.hosts
	for _, h := range nodes {
		c.saved[h] = filepath.Join(t.TempDir(), "state")
		h.Stop()
		if err := os.CopyFS(c.saved[h], os.DirFS(h.State)); err != nil {
			t.Fatal(err)
		}
		h.Start()
	}
	for n := range count {
		c.all = append(c.all, &host{ns: c.connected(firstClone + n), name: fmt.Sprint("clone", n+1)})
	}
	c.free = c.all
	c.lan.hosts = slices.Concat(nodes, c.free) // the log has what they answer
	c.watcher = watch(c.lan, c.client, c.addr)
	c.lan.hosts = nodes
	c.held()
	return c
}

// clone starts the daemon of another host with the copy of a host's state, and returns the host and its address.
func (c *clones) clone(of *host) (h *host, addr string) {
	t := c.lan.T
	t.Helper()
	h, c.free = c.free[0], c.free[1:]
	order := daemons.In(t.TempDir())
	if err := os.CopyFS(order.State, os.DirFS(c.saved[of])); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(order.State, 0o700); err != nil {
		t.Fatal(err)
	}
	h.Daemon = daemons.New(t, order, child.Place{Netns: h.ns.File()})
	return h, fmt.Sprintf("192.0.2.%d", firstClone+len(c.all)-len(c.free)-1)
}

// reported waits until the status of all nodes but one has a text about a node, and notes how long that takes.
func (c *clones) reported(about *host, text string, since time.Time) {
	c.lan.Helper()
	var shown []*host
	c.until("the other nodes show that "+text, func() bool {
		var all sync.WaitGroup
		found := make([]bool, len(c.lan.hosts))
		for i, h := range c.lan.hosts {
			if h != about && !slices.Contains(shown, h) {
				all.Go(func() { found[i] = c.shows(h, about.name, text) })
			}
		}
		all.Wait()
		for i, is := range found {
			if is {
				shown = append(shown, c.lan.hosts[i])
			}
		}
		return len(shown) == len(c.lan.hosts)-1
	})
	c.slowest = max(c.slowest, time.Since(since))
}

// shows reports whether what `cluster status` prints on a host has a text about a node.
func (c *clones) shows(h *host, node, text string) bool {
	s, _ := admin.ShowNodes.Do(c.lan.Context(), h.Client) // an empty status has no nodes
	return slices.ContainsFunc(s.Nodes, func(n api.ClusterNodeStatus) bool {
		return n.Name == node && strings.Contains(n.Frozen+strings.Join(n.Problems, "\n"), text)
	})
}

// cutOff drops a host's packets to and from etcd, until the returned function is called.
func (c *clones) cutOff(h *host) (end func()) {
	t := c.lan.T
	t.Helper()
	shell.Run(t, h.ns.Do, "nft 'table ip cut { chain input { type filter hook input priority raw; "+
		"ip saddr 192.0.2.9 drop; }; chain output { type filter hook output priority raw; ip daddr 192.0.2.9 drop; }; }'")
	return func() { shell.Run(t, h.ns.Do, "nft delete table ip cut") }
}

// judged fails the test if two hosts have answered at the same time.
func (c *clones) judged(what string, checked bool) {
	t := c.lan.T
	t.Helper()
	c.close()
	log := c.logs[c.addr]
	moves, overlaps := judge(log.all)
	t.Logf("%s: %d answers and accepted packets, %d moves, %d overlaps; all nodes show each after at most %s", what,
		len(log.all), moves, len(overlaps), c.slowest)
	for _, o := range overlaps {
		t.Errorf("two hosts answer at the same time: %s", o)
	}
	if checked && c.slowest > reportLimit {
		t.Errorf("the other nodes show it after %s, want at most %s", c.slowest, reportLimit)
	}
}

// cloneKinds are the circumstances in which a copy of the holder is started.
var cloneKinds = []struct {
	name  string
	start func(c *clones, of *host) (since time.Time, addr string)
}{
	{"beside its node", func(c *clones, of *host) (time.Time, string) {
		since := time.Now()
		_, addr := c.clone(of)
		return since, addr
	}},
	{"cut off from etcd", func(c *clones, of *host) (time.Time, string) {
		end := c.cutOff(c.free[0])
		h, addr := c.clone(of)
		c.quiet(h)
		end()
		return time.Now(), addr
	}},
	{"while its node is cut off from etcd", func(c *clones, of *host) (time.Time, string) {
		end := c.cutOff(of)
		c.until("etcd does not see the node", func() bool {
			for _, n := range c.other(of).status().Nodes {
				if n.Name == of.name {
					return !n.Alive
				}
			}
			return false
		})
		since := time.Now()
		h, addr := c.clone(of)
		c.reported(of, addr, since)
		c.quiet(h)
		end()
		return since, addr
	}},
	{"at the same time as its node", func(c *clones, of *host) (time.Time, string) {
		of.Kill()
		var both sync.WaitGroup
		both.Go(of.Start)
		since := time.Now()
		_, addr := c.clone(of)
		both.Wait()
		return since, addr
	}},
}

// other returns another node.
func (c *clones) other(than *host) *host {
	if c.lan.hosts[0] == than {
		return c.lan.hosts[1]
	}
	return c.lan.hosts[0]
}

// quiet waits for three times the hold time, in which a copy would take the address.
func (c *clones) quiet(h *host) {
	c.lan.Helper()
	for end := time.Now().Add(3 * faultHold); time.Now().Before(end); {
		if c.accepts(h) {
			c.lan.Errorf("%s answers for the address", h.name)
			return
		}
	}
}

// TestClones starts copies of the node that holds a virtual address, on hosts with other addresses. None of them
// answers for it, and all nodes show them. FAIRLEAD_CLONES is their number.
func TestClones(t *testing.T) {
	count, checked := counted(t, len(cloneKinds))
	c := newClones(t, count)
	for n := range count {
		kind := cloneKinds[n%len(cloneKinds)]
		of := c.held()
		t.Logf("a copy of %s %s", of.name, kind.name)
		since, addr := kind.start(c, of)
		before := c.slowest
		c.reported(of, addr, since)
		if kind.name == cloneKinds[2].name {
			c.slowest = before // it was measured while the node was cut off
		}
	}
	c.judged(fmt.Sprintf("%d copies of nodes", count), checked)
}

// TestAddressChanges gives the host that holds a virtual address another address of its own. All nodes show that, and
// the address moves. `cluster readdress` makes the host a node again. FAIRLEAD_CLONES is the number of changes.
func TestAddressChanges(t *testing.T) {
	count, checked := counted(t, 2)
	c := newClones(t, 0)
	at := map[*host]netip.Addr{}
	for n, h := range c.lan.hosts {
		at[h] = netip.AddrFrom4([4]byte{192, 0, 2, byte(n + 1)})
	}
	for n := range count {
		h := c.held()
		next := netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + n)})
		kerneltest.Run(t, h.ns, "ip", "address", "del", at[h].String()+"/24", "dev", "eth0")
		kerneltest.Run(t, h.ns, "ip", "address", "add", next.String()+"/24", "dev", "eth0")
		since := time.Now()
		c.reported(h, "does not have the address "+at[h].String(), since)
		c.held(h)
		c.lan.refused(h, "cluster readdress", "cluster", "status")
		h.Run("cluster", "readdress", next.String())
		at[h] = next
		c.until("all nodes reach "+h.name+" at its new address", func() bool {
			for _, n := range c.other(h).status().Nodes {
				if n.Name == h.name {
					return n.Answered && n.Frozen == "" && slices.Contains(n.Addresses, next)
				}
			}
			return false
		})
		c.until("the status of "+h.name+" has no problem", func() bool {
			_, err := h.Try("cluster", "status")
			return err == nil
		})
	}
	c.judged(fmt.Sprintf("%d changes of addresses", count), checked)
}
