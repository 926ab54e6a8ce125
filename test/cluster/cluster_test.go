// Package cluster_test runs complete daemons on three hosts that share a real etcd.
package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/gateway/serving"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/proxy"
	"fairlead/test/authority"
	"fairlead/test/daemons"
	"fairlead/test/etcd"
	"fairlead/test/failover"
	"fairlead/test/place"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{proxy.Role: proxy.Main, daemons.Role: daemons.Main, daemons.CLIRole: daemons.CLI,
		failover.AskRole: failover.AskMain, authority.Role: authority.Main, serving.Role: serving.Main})
	os.Exit(m.Run())
}

// lan has three hosts and an etcd at 192.0.2.9.
type lan struct {
	*testing.T
	between *netns.Namespace
	etcd    *etcd.Cluster
	// endpoints are the URLs of etcd for the hosts.
	endpoints []string
	hosts     []*host
}

// host is a host with a daemon.
type host struct {
	*daemons.Daemon
	ns   *netns.Namespace
	name string
}

func newLAN(t *testing.T) *lan { return newLANWith(t, 1) }

// alone is an environment variable that a test sets to run alone.
const alone = "FAIRLEAD_ALONE"

// measured are the environment variables with which tests measure, run for long, or run alone.
var measured = []string{alone, limited, nodesAsked, awayFor, "FAIRLEAD_CLONES", "FAIRLEAD_FAULTS",
	"FAIRLEAD_SERVICE_RATE"}

// parallel lets a test run beside others, because it waits most of the time. A test that measures runs alone.
func parallel(t *testing.T) {
	t.Helper()
	if !slices.ContainsFunc(measured, func(name string) bool { return os.Getenv(name) != "" }) {
		t.Parallel()
	}
}

// newLANWith returns a LAN with a number of members of etcd.
func newLANWith(t *testing.T, members int) *lan {
	t.Helper()
	l := newEmptyLAN(t, members)
	for n := range 3 {
		ns := l.connected(n + 1)
		order := daemons.In(t.TempDir())
		order.Metrics = "unix:" + order.Run + "/metrics"
		l.hosts = append(l.hosts, &host{daemons.New(t, order, child.Place{Netns: ns.File()}), ns,
			fmt.Sprint("host", n+1)})
	}
	return l
}

// newEmptyLAN returns a LAN without hosts, with a number of members of etcd at 192.0.2.9, 192.0.2.19 and so on.
func newEmptyLAN(t *testing.T, members int) *lan {
	t.Helper()
	parallel(t)
	l := &lan{T: t, between: kerneltest.Netns(t)}
	kerneltest.Run(t, l.between, "ip", "link", "add", "br0", "type", "bridge")
	kerneltest.Run(t, l.between, "ip", "link", "set", "br0", "up")
	var spots []etcd.Spot
	for n := range members {
		spots = append(spots, etcd.Spot{Host: fmt.Sprintf("192.0.2.%d", 9+10*n), In: l.connected(9 + 10*n).Do})
	}
	l.etcd = etcd.Start(t, spots)
	l.endpoints = l.etcd.Endpoints()
	return l
}

// connected returns a namespace with the address 192.0.2.NUMBER.
func (l *lan) connected(number int) *netns.Namespace {
	l.Helper()
	ns, port := kerneltest.Netns(l), fmt.Sprint("port", number)
	kerneltest.Run(l, l.between, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns",
		fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.File().Fd()))
	kerneltest.Run(l, l.between, "ip", "link", "set", port, "master", "br0", "up")
	kerneltest.Run(l, ns, "ip", "addr", "add", fmt.Sprintf("192.0.2.%d/24", number), "dev", "eth0")
	kerneltest.Run(l, ns, "ip", "link", "set", "eth0", "up")
	return ns
}

// init makes the first host create the cluster.
func (l *lan) init() {
	l.Helper()
	l.hosts[0].Run("cluster", "init", "--etcd", strings.Join(l.endpoints, ","), "--node-name", "host1")
}

// joined makes all hosts one cluster.
func (l *lan) joined() {
	l.Helper()
	l.init()
	token := strings.TrimSpace(l.hosts[0].Run("cluster", "token", "create", "--uses", "2"))
	for _, h := range l.hosts[1:] {
		h.Run("cluster", "join", token, "--node-name", h.name)
	}
	for _, h := range l.hosts {
		l.until("all nodes are alive on "+h.name, func() bool {
			alive := 0
			for _, n := range h.status().Nodes {
				if n.Alive {
					alive++
				}
			}
			return alive == 3
		})
	}
}

// ask returns the daemon's answer to a query. It is empty if the daemon does not answer. Commands send the same query,
// but need much more CPU time if a test repeats them until something holds.
func ask[Answer any](h *host, query admin.Query[Answer]) Answer {
	ctx, cancel := context.WithTimeout(context.Background(), place.Timeout)
	defer cancel()
	answer, _ := query.Do(ctx, h.Client)
	return answer
}

// status returns the state of the cluster. It has no nodes if the daemon does not answer.
func (h *host) status() api.ClusterStatus { return ask(h, admin.ShowNodes) }

// printed returns what `cluster status` prints.
func (h *host) printed() (s api.ClusterStatus) {
	text, _ := h.Try("cluster", "status", "-o", "json") // it fails if etcd does not answer
	if end := strings.LastIndex(text, "\n}"); end >= 0 {
		_ = json.Unmarshal([]byte(text[:end+2]), &s) // an empty status has no nodes
	}
	return s
}

// node returns what a host shows of a node; it has no name if the host does not show it.
func (h *host) node(name string) (n api.ClusterNodeStatus) {
	all := h.status().Nodes
	if i := slices.IndexFunc(all, func(n api.ClusterNodeStatus) bool { return n.Name == name }); i >= 0 {
		n = all[i]
	}
	return n
}

func (l *lan) until(what string, holds func() bool) {
	l.Helper()
	for end := time.Now().Add(place.Timeout); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			l.Fatalf("timeout: %s", what)
		}
	}
}

// refused runs a command that must fail with a text.
func (l *lan) refused(h *host, want string, args ...string) {
	l.Helper()
	if said, err := h.Try(args...); err == nil || !strings.Contains(said, want) {
		l.Errorf("fairlead %s: %v, want %q in\n%s", strings.Join(args, " "), err, want, said)
	}
}

// TestMembership makes three hosts one cluster with commands, drains and removes one, and leaves. Meanwhile a
// sandbox of the first host exchanges messages with a host of the LAN on one connection, and none is lost.
func TestMembership(t *testing.T) {
	l := newLAN(t)
	one, two, three := l.hosts[0], l.hosts[1], l.hosts[2]
	one.Run("network", "create", "web", "--driver", "bridge", "--subnet", "172.30.7.0/24")
	kerneltest.Run(t, one.ns, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	outside := box{Namespace: l.connected(50), addr: netip.MustParseAddr("192.0.2.50")}
	messages := l.stream("tcp", l.boxAt(one, "web"), outside)
	before := ""
	l.until("the bridge has a carrier", func() bool {
		before = kerneltest.Run(t, one.ns, "ip", "-o", "link", "show", "type", "bridge")
		return strings.Contains(before, "state UP")
	})
	l.joined()
	l.refused(three, "already belongs to cluster default", "cluster", "init", "--etcd", "http://192.0.2.9:2379")
	l.refused(three, "copy it again", "cluster", "join", "fljoin1.abc")
	three.Run("cluster", "drain", "host2")
	l.until("host2 is drained", func() bool { return one.node("host2").Drained })
	if s := one.printed(); len(s.Nodes) != 3 || s.Nodes[1].Name != "host2" || !s.Nodes[1].Drained {
		t.Errorf("`cluster status` prints %+v", s)
	}
	three.Run("cluster", "drain", "host2", "--undo")
	l.refused(one, "host2 is alive", "cluster", "rm", "host2")
	two.Kill()
	one.Run("cluster", "rm", "host2", "--force") // its lease has not ended yet
	two.Start()
	l.until("host2 was removed", func() bool { return strings.Contains(two.status().Problem, "was removed") })
	two.Run("cluster", "leave")
	token := strings.TrimSpace(one.Run("cluster", "token", "create"))
	two.Run("cluster", "join", token, "--node-name", "host2")
	l.refused(two, "already belongs", "cluster", "join", token)
	l.until("host2 is back", func() bool { return len(three.status().Nodes) == 3 })
	for _, h := range []*host{three, two, one} {
		h.Run("cluster", "leave")
	}
	messages.end()
	if after := kerneltest.Run(t, one.ns, "ip", "-o", "link", "show", "type", "bridge"); after != before {
		t.Errorf("the host's own bridge was\n%s\nand is\n%s", before, after)
	}
	if _, err := os.Stat(filepath.Join(one.State, "cluster")); !os.IsNotExist(err) {
		t.Errorf("the directory of the cluster after leaving: %v", err)
	}
}

// TestSetEtcd changes the servers of etcd that the hosts use, and ends the one that they have used before. Their
// overlay keeps its links.
func TestSetEtcd(t *testing.T) {
	l := newLANWith(t, 3)
	all := l.endpoints
	l.endpoints = all[:1]
	l.joined()
	one := l.hosts[0]
	one.Run("network", "create", "shop", "--cluster", "--driver", "vxlan", "--subnet", "10.9.0.0/16")
	links := map[*host]string{}
	overlay := func(h *host) string { return kerneltest.Run(t, h.ns, "ip", "-o", "link", "show", "type", "vxlan") }
	for _, h := range l.hosts {
		l.until(h.name+" has the network", h.has)
		l.box(h)
		links[h] = overlay(h)
	}
	l.refused(one, "etcd does not answer", "cluster", "etcd", "--etcd", "http://192.0.2.99:2379")
	for _, h := range l.hosts {
		h.Run("cluster", "etcd", "--etcd", strings.Join(all[1:], ","))
	}
	l.etcd.Members[0].Kill()
	one.Run("cluster", "drain", "host2")
	for _, h := range l.hosts {
		l.until(h.name+" knows that host2 is drained", func() bool {
			s := h.status()
			return s.Etcd.Connected && len(s.Nodes) == 3 && s.Nodes[1].Drained && len(s.Etcd.Servers) == 2
		})
		if now := overlay(h); now != links[h] || now == "" {
			t.Errorf("the overlay of %s was\n%s\nand is\n%s", h.name, links[h], now)
		}
	}
}

// TestEtcdAway ends etcd, restarts a daemon, and starts etcd again. The host stays a member, and
// notices what has changed.
func TestEtcdAway(t *testing.T) {
	l := newLAN(t)
	l.joined()
	l.etcd.Members[0].Kill()
	two := l.hosts[1]
	two.Stop()
	two.Start()
	l.until("host2 has its records from the disk", func() bool { return len(two.status().Nodes) == 3 })
	if s := two.printed(); len(s.Nodes) != 3 || s.Etcd.Connected {
		t.Errorf("without etcd, `cluster status` prints %+v", s)
	}
	l.refused(two, "etcd does not answer", "cluster", "status")
	l.etcd.Members[0].Start()
	l.until("etcd is back", func() bool { return two.status().Etcd.Connected })
	for _, event := range []string{"etcd lost", "etcd answers"} {
		l.until("an event: "+event, func() bool { return strings.Contains(l.hosts[0].Run("events"), event) })
	}
	l.hosts[0].Run("cluster", "drain", "host3")
	l.until("host2 notices a change", func() bool { return two.node("host3").Drained })
}

// TestKilled kills the daemons of two hosts at several moments of init and join, and repeats the
// requests. The requests do not use the command line, which would start another daemon.
func TestKilled(t *testing.T) {
	l := newLAN(t)
	one, two := l.hosts[0], l.hosts[1]
	access := api.EtcdAccess{Endpoints: l.etcd.Endpoints()}
	repeated(t, one, func(c *admin.Client) error {
		_, err := admin.InitCluster.Do(t.Context(), c,
			api.ClusterInit{Etcd: access, ClusterNode: api.ClusterNode{Node: "host1"}})
		return err
	})
	var token string
	l.until("a token", func() bool {
		created, err := admin.CreateToken.Do(t.Context(), one.Client, api.ClusterTokenRequest{})
		token = created.Text
		return err == nil
	})
	repeated(t, two, func(c *admin.Client) error {
		_, err := admin.JoinCluster.Do(t.Context(), c,
			api.ClusterJoin{Token: token, ClusterNode: api.ClusterNode{Node: "host2"}})
		return err
	})
	l.until("two nodes", func() bool { return len(one.status().Nodes) == 2 && len(two.status().Nodes) == 2 })
}

// repeated kills the daemon at a later moment of the request each time, and then lets it complete.
func repeated(t *testing.T, h *host, request func(*admin.Client) error) {
	t.Helper()
	for round := range 4 {
		ended := make(chan struct{})
		client := h.Client
		go func() { defer close(ended); _ = request(client) }() // the daemon is killed
		select {
		case <-ended:
		case <-time.After(time.Duration(round*round) * 5 * time.Millisecond):
		}
		h.Kill()
		<-ended
		h.Start()
	}
	if err := request(h.Client); err != nil && !strings.Contains(err.Error(), "already belongs") {
		t.Fatal(err)
	}
}
