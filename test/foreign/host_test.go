package foreign_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/gateway/serving"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/proxy"
	"fairlead/test/daemons"
	"fairlead/test/place"
	"fairlead/test/shell"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{daemons.Role: daemons.Main, daemons.CLIRole: daemons.CLI,
		proxy.Role: proxy.Main, serving.Role: serving.Main})
	os.Exit(m.Run())
}

// host is a host with a daemon, beside a router from which it has its IPv6 default
// route. It has one sandbox.
//
//	router 198.51.100.1 ── wire0 wire0 ── 198.51.100.2 host
type host struct {
	*testing.T
	ns, router, box *netns.Namespace
	daemon          *daemons.Daemon
	// dir has the files that commands read.
	dir string
	// last is the state after the last command; empty if something else has changed it since.
	last string
	// other is the daemon of the router, if both are nodes of a cluster, and token what the host joins it with.
	other *daemons.Daemon
	token string
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{T: t, ns: kerneltest.Netns(t), router: kerneltest.Netns(t), box: kerneltest.Netns(t),
		dir: t.TempDir()}
	for ns, n := range map[*netns.Namespace]int{h.ns: 2, h.router: 1} {
		shell.Run(t, ns.Do, "sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.default.dad_transmits=0")
		if n == 2 {
			shell.Run(t, ns.Do, fmt.Sprintf("ip link add wire0 type veth peer name wire0 netns /proc/%d/fd/%d", os.Getpid(),
				h.router.File().Fd()))
		}
	}
	for ns, n := range map[*netns.Namespace]int{h.ns: 2, h.router: 1} {
		shell.Run(t, ns.Do, fmt.Sprintf("sysctl -qw net.ipv6.conf.wire0.accept_dad=0 net.ipv6.conf.wire0.accept_ra=%[2]d && "+
			"ip link set lo up && ip addr add 198.51.100.%[1]d/24 dev wire0 && ip addr add 2001:db8:1::%[1]d/64 dev wire0 nodad && "+
			"ip link set wire0 up", n, n-1))
	}
	shell.Run(t, h.router.Do, "sysctl -qw net.ipv6.conf.all.forwarding=1") // it says of itself that it is a router
	shell.Run(t, h.ns.Do, "ip route add default via 198.51.100.1")
	place.AwaitRouter(t, h.router.Do, "wire0", h.ns.Do, "ip -6 route show default | grep -q 'proto ra'")
	h.daemon = daemons.New(t, daemons.In(t.TempDir()), child.Place{Netns: h.ns.File()})
	return h
}

// state returns how the host reaches others: its addresses, routes, rules and next
// hops, without those of Fairlead's networks and without lifetimes.
func (h *host) state() string {
	h.Helper()
	return shell.Run(h, h.ns.Do, "(ip -4 route show table all; ip -6 route show table all) | "+
		"grep -v -e ' table local' -e 172.30.0 -e fd00:30: -e ' 10.9.' -e ' dev f[lvx]-[nw]e[tb]' -e 192.0.2.8[01] "+
		"-e 198.51.100.7 -e 'multicast ff' | "+
		"sed 's/ expires [0-9]*sec//; s/ mtu 1280//; s/ linkdown//' | sort; "+
		"ip -o addr | grep -v -e ' f[lvx]-[nw]e[tb]' -e 198.51.100.7 | "+
		"sed 's/^[0-9]*: //; s/valid_lft.*//; s/ tentative//' | sort; ip rule; ip -6 rule; ip nexthop")
}

// keeps runs a command, and fails the test if the command changes how the host reaches
// others.
func (h *host) keeps(what string, command func()) {
	h.Helper()
	before := h.last
	if before == "" {
		before = h.state()
	}
	command()
	h.last = h.state()
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(h.last, "\n")); diff != "" {
		h.Errorf("%s changes how the host reaches others, was (-), is (+):\n%s", what, diff)
	}
}

// reaches connects to an address.
func (h *host) reaches(from *netns.Namespace, addr string) {
	h.Helper()
	conn, err := place.Dial(from.Do, "tcp", addr, place.Timeout)
	if err == nil {
		err = conn.Close()
	}
	if err != nil {
		h.Errorf("connect to %s: %v", addr, err)
	}
}
