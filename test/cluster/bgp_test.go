package cluster_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/test/place"
)

// The addresses of TestBGP: the router towards the hosts and towards the client, and the announced one.
const (
	routerAddress = "192.0.2.20"
	routerOutside = "198.51.100.1"
	announced     = "203.0.113.10"
	// leaked is a route of the first router, which must not reach the second one.
	secondRouter = "192.0.2.21"
	leaked       = "198.18.0.0/15"
)

// TestBGP announces an address from three hosts to a real router. The router spreads a client's connections
// over the hosts, without one that is drained, and without one that is cut off.
func TestBGP(t *testing.T) {
	l := newLAN(t)
	l.joined()
	router, client := l.router()
	second := l.bird(l.connected(21), secondRouter, "64520", "198.51.101.0/24")
	for _, h := range l.hosts {
		kerneltest.Run(t, h.ns, "ip", "route", "add", "198.51.100.0/24", "via", routerAddress)
		place.Answer(t, h.ns.Do, ":80", func(place.Request) string { return h.name })
	}
	one, three := l.hosts[0], l.hosts[2]
	one.Run("cluster", "address", "add", "192.0.2.77/32", "--announce", "bgp")
	one.Run("cluster", "bgp", "add", routerAddress, "--as", "64512", "--local-as", "64513")
	again := one.Run("cluster", "bgp", "add", routerAddress, "--as", "64512", "--local-as", "64513")
	if !strings.Contains(again, "already") {
		t.Errorf("the same router again: %s", again)
	}
	l.refused(one, "has it with other settings", "cluster", "bgp", "add", routerAddress, "--as", "64511", "--local-as",
		"64513")
	l.refused(one, "it has "+routerAddress, "cluster", "bgp", "rm", "192.0.2.99")
	l.refused(one, `no node "host9": it has host1, host2, host3`, "cluster", "bgp", "add", "192.0.2.99", "--as", "1",
		"--local-as", "64513", "--node", "host9")
	one.Run("cluster", "bgp", "add", secondRouter, "--as", "64520", "--local-as", "64513", "--node", "host1",
		"--bfd=false")
	l.refused(one, "can have only one", "cluster", "bgp", "add", "192.0.2.22", "--as", "64512", "--local-as", "64514")
	three.Run("cluster", "address", "add", announced+"/32", "--announce", "bgp")
	l.refused(three, "all candidates have it", "cluster", "address", "move", announced)
	l.answer(client, "host1", "host2", "host3")
	l.until("the sessions have BFD", func() bool {
		return strings.Contains(one.Run("cluster", "bgp", "ls"), " up")
	})
	routes := ""
	l.until("the second router has the address", func() bool {
		routes = kerneltest.Run(t, l.between, "birdc", "-s", second, "show", "route")
		return strings.Contains(routes, announced)
	})
	if strings.Contains(routes, leaked) {
		t.Errorf("a node has passed on a router's route:\n%s", routes)
	}
	if said, _ := one.Try("cluster", "status"); !strings.Contains(said, "192.0.2.77 is on the subnet of link") {
		t.Errorf("an address of the hosts' own subnet is announced:\n%s", said)
	}
	one.Run("cluster", "drain", "host2")
	l.answer(client, "host1", "host3")
	kerneltest.Run(t, l.between, "ip", "link", "set", "port1", "down")
	l.answer(client, "host3")
	kerneltest.Run(t, l.between, "ip", "link", "set", "port1", "up")
	l.answer(client, "host1", "host3")
	l.removeCutOff(one, l.hosts[1])
	l.answer(client, "host1", "host3")
	three.Run("cluster", "address", "rm", announced)
	l.answer(client)
	l.answerOverIPv6(router, one)
	for _, h := range l.hosts {
		l.until(h.name+" has lost the address", func() bool {
			return !strings.Contains(kerneltest.Run(t, h.ns, "ip", "addr"), announced)
		})
	}
	one.Run("cluster", "bgp", "rm", routerAddress)
}

// removeCutOff ends the drain of a host, cuts it off from etcd, and removes it from the cluster. The host learns of it
// only after the cut.
func (l *lan) removeCutOff(one, other *host) {
	l.Helper()
	one.Run("cluster", "drain", other.name, "--undo")
	kerneltest.Run(l, other.ns, "ip", "route", "add", "blackhole", "192.0.2.9")
	l.until(other.name+" is not alive", func() bool {
		_, err := one.Try("cluster", "rm", other.name)
		return err == nil
	})
	kerneltest.Run(l, other.ns, "ip", "route", "del", "blackhole", "192.0.2.9")
}

// answerOverIPv6 announces an IPv6 address, and connects to it from the router.
func (l *lan) answerOverIPv6(router *netns.Namespace, h *host) {
	l.Helper()
	const at, address = "2001:db8::20", "2001:db8:53::10"
	kerneltest.Run(l, router, "ip", "addr", "add", at+"/64", "dev", "eth0", "nodad")
	kerneltest.Run(l, h.ns, "ip", "addr", "add", "2001:db8::1/64", "dev", "eth0", "nodad")
	place.Serve(l, h.ns.Do, ":81", place.Hangup)
	h.Run("cluster", "bgp", "add", at, "--as", "64512", "--local-as", "64513", "--node", h.name)
	h.Run("cluster", "address", "add", address+"/128", "--announce", "bgp", "--candidate", h.name)
	l.until("the router reaches the IPv6 address", func() bool {
		conn, err := place.Dial(router.Do, "tcp", "["+address+"]:81", time.Second)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	h.Run("cluster", "address", "rm", address)
	h.Run("cluster", "bgp", "rm", at)
}

// answer waits until exactly these hosts answer connections of the client to the announced address.
func (l *lan) answer(client *netns.Namespace, names ...string) {
	l.Helper()
	want := strings.Join(names, " ")
	l.until("only these hosts answer: "+want, func() bool {
		seen := map[string]bool{}
		for range 40 {
			conn, err := place.Dial(client.Do, "tcp", announced+":80", place.Timeout)
			if err != nil {
				return want == ""
			}
			_, _ = io.WriteString(conn, "who\n") // the answer is missing if it fails
			name, _ := bufio.NewReader(conn).ReadString('\n')
			conn.Close()
			seen[strings.TrimSpace(name)] = true
		}
		for _, name := range names {
			if !seen[name] {
				return false
			}
		}
		return len(seen) == len(names)
	})
}

// router starts a router between the hosts and a client, and returns the namespaces of both.
func (l *lan) router() (router, client *netns.Namespace) {
	l.Helper()
	router, client = l.connected(20), kerneltest.Netns(l)
	for _, args := range []string{
		fmt.Sprintf("link add outside type veth peer name eth0 netns /proc/%d/fd/%d", os.Getpid(), client.File().Fd()),
		"addr add " + routerOutside + "/24 dev outside", "link set outside up",
	} {
		kerneltest.Run(l, router, "ip", strings.Fields(args)...)
	}
	kerneltest.Run(l, router, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.fib_multipath_hash_policy=1")
	for _, args := range []string{"addr add 198.51.100.2/24 dev eth0", "link set eth0 up",
		"route add default via " + routerOutside} {
		kerneltest.Run(l, client, "ip", strings.Fields(args)...)
	}
	l.bird(router, routerAddress, "64512", leaked)
	return router, client
}

// bird starts BIRD in a router's namespace, with the hosts as neighbours, and returns its control socket. The
// router announces a route of its own to them.
func (l *lan) bird(router *netns.Namespace, addr, as, own string) (control string) {
	l.Helper()
	config := "router id " + addr + ";\nprotocol device {}\nprotocol static { ipv4; route " + own + " blackhole; }\n" +
		"protocol bfd { interface \"eth0\" { interval 300 ms; multiplier 3; }; }\n" +
		"protocol kernel { merge paths on; ipv4 { import none; export where source = RTS_BGP; }; }\n" +
		"protocol kernel { ipv6 { import none; export where source = RTS_BGP; }; }\n" +
		"protocol bgp { local as " + as + "; neighbor 2001:db8::1 as 64513; passive on; bfd on; " +
		"ipv6 { import all; export none; }; }\n"
	for n := range l.hosts {
		config += fmt.Sprintf("protocol bgp { local as %s; neighbor 192.0.2.%d as 64513; passive on; bfd on; "+
			"error wait time 1, 1; ipv4 { import all; export where source = RTS_STATIC; }; }\n", as, n+1)
	}
	dir := l.TempDir()
	path := filepath.Join(dir, "bird.conf")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		l.Fatal(err)
	}
	control = filepath.Join(dir, "bird.ctl")
	c := exec.Command("bird", "-f", "-c", path, "-s", control, "-P", filepath.Join(dir, "pid"))
	c.Stderr = os.Stderr
	if err := router.Do(c.Start); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // it was killed
	})
	return control
}
