package balance_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/test/daemons"
	"fairlead/test/place"
	"fairlead/test/shell"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{daemons.Role: daemons.Main, daemons.CLIRole: daemons.CLI})
	os.Exit(m.Run())
}

// site is a host with a daemon, between a client and a machine with two real
// servers. Answers to the client's second address do not pass through the host.
//
//	client 198.51.100.1 ── c0 host s0 ── 10.0.0.2, 10.0.0.3 servers
//	     └─ 203.0.113.100 ─────────────────── 203.0.113.11 ─┘
type site struct {
	*testing.T
	host, client, servers *netns.Namespace
	daemon                *daemons.Daemon
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, host: kerneltest.Netns(t), client: kerneltest.Netns(t), servers: kerneltest.Netns(t)}
	at := func(ns *netns.Namespace) string { return fmt.Sprintf("/proc/%d/fd/%d", pid, ns.File().Fd()) }
	shell.Run(t, s.host.Do, "ip link set lo up && ip link add c0 type veth peer name eth0 netns "+at(s.client)+
		" && ip link add s0 type veth peer name eth0 netns "+at(s.servers)+
		" && ip addr add 198.51.100.2/24 dev c0 && ip addr add 10.0.0.1/24 dev s0 && ip link set c0 up && ip link set s0 up")
	shell.Run(t, s.client.Do,
		"ip addr add 198.51.100.1/24 dev eth0 && ip link set eth0 up && ip route add default via 198.51.100.2")
	shell.Run(t, s.servers.Do,
		"ip addr add 10.0.0.2/24 dev eth0 && ip addr add 10.0.0.3/24 dev eth0 && ip link set eth0 up && ip route add default via 10.0.0.1")
	s.links(at(s.servers))
	s.serve("10.0.0.2:80")
	s.serve("10.0.0.3:80")
	dir := t.TempDir()
	order := daemons.In(dir)
	order.Metrics = "unix:" + filepath.Join(dir, "metrics")
	s.daemon = daemons.New(t, order, child.Place{Netns: s.host.File()})
	return s
}

// links adds the addresses of IPv6, and the link between the client and the servers.
func (s *site) links(servers string) {
	s.Helper()
	shell.Run(s, s.host.Do, `set -e
ip addr add 2001:db8:1::2/64 dev c0 nodad
ip addr add fd00:10::1/64 dev s0 nodad
ip route add 203.0.113.0/24 via 198.51.100.1
ip -6 route add 2001:db8:113::/64 via 2001:db8:1::1`)
	shell.Run(s, s.client.Do, `set -e
ip addr add 2001:db8:1::1/64 dev eth0 nodad
ip -6 route add default via 2001:db8:1::2
ip link add lan0 type veth peer name lan0 netns `+servers+`
ip addr add 203.0.113.100/24 dev lan0
ip addr add 2001:db8:113::100/64 dev lan0 nodad
sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.lan0.rp_filter=0
ip link set lan0 up`)
	shell.Run(s, s.servers.Do, `set -e
ip addr add fd00:10::2/64 dev eth0 nodad
ip -6 route add default via fd00:10::1
ip addr add 203.0.113.11/24 dev lan0
ip addr add 2001:db8:113::11/64 dev lan0 nodad
ip link set lan0 up`)
}

// serve sends its name to each client at an address, and again for each line.
func (s *site) serve(at string) {
	s.Helper()
	place.Serve(s, s.servers.Do, at, func(conn net.Conn) {
		for lines := bufio.NewScanner(conn); ; {
			if fmt.Fprintln(conn, at); !lines.Scan() {
				return
			}
		}
	})
}

// says fails the test unless the output of a command contains all of these texts.
func (s *site) says(command string, all ...string) {
	s.Helper()
	said := s.daemon.Run(strings.Fields(command)...)
	for _, want := range all {
		if !strings.Contains(said, want) {
			s.Errorf("fairlead %s does not say %q:\n%s", command, want, said)
		}
	}
}

// visit connects to the service until each server has the given number of conversations.
func (s *site) visit(each int) map[string][]net.Conn {
	s.Helper()
	all := map[string][]net.Conn{}
	for range 60 * each {
		conn, err := place.Dial(s.client.Do, "tcp", "192.0.2.80:80", place.Timeout)
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { conn.Close() })
		by := s.hear(conn)
		all[by] = append(all[by], conn)
		if len(all["10.0.0.2:80"]) >= each && len(all["10.0.0.3:80"]) >= each {
			return all
		}
	}
	s.Fatalf("fewer than two servers answer: %v", all)
	return nil
}

func (s *site) hear(conn net.Conn) string {
	s.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(place.Timeout)); err != nil {
		s.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		s.Fatalf("%s receives no answer: %v", conn.LocalAddr(), err)
	}
	return strings.TrimSpace(line)
}

// TestSession runs a service on each data plane in a daemon, and checks the output of the user's
// commands: the path of a client's packet, repairs, and the clients of a removed server.
func TestSession(t *testing.T) {
	for name := range strings.SplitSeq(*planes, ",") {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.daemon.Run("service", "add", "web", "192.0.2.80:80", "--plane", name, "--scheduler", "rr", "--real",
				"10.0.0.2", "--real", "10.0.0.3")
			s.says("service ls", "192.0.2.80:80", name, "10.0.0.2", "10.0.0.3")
			s.explained(model.Plane(name))
			if model.Plane(name) == model.PlaneIPVS {
				s.repaired()
			}
			s.split()
		})
	}
}

// explained checks that the path of a client's packet shows the data plane's hop
// and both servers.
func (s *site) explained(plane model.Plane) {
	s.Helper()
	hop := map[model.Plane]string{model.PlaneNFT: "destination NAT from 192.0.2.80:80", model.PlaneEBPF: "eBPF: ",
		model.PlaneIPVS: "IPVS: "}[plane]
	s.says("explain 198.51.100.1 to 192.0.2.80:80", hop, "service web", "10.0.0.2:80", "10.0.0.3:80", "s0")
}

// repaired checks that changes to Fairlead's IPVS service are repaired and
// reported, and that other programs' services stay.
func (s *site) repaired() {
	s.Helper()
	run := func(line string) string { return shell.Run(s, s.host.Do, line) }
	run("ipvsadm -A -t 192.0.2.81:80 -s wrr && ipvsadm -a -t 192.0.2.81:80 -r 10.0.0.9:80 -m -w 3")
	want := run("ipvsadm -S -n | sort")
	for i, harm := range []string{"-e -t 192.0.2.80:80 -r 10.0.0.2:80 -m -w 7", "-d -t 192.0.2.80:80 -r 10.0.0.3:80"} {
		run("ipvsadm " + harm)
		s.hasReported(i+1, "ipvs tcp 192.0.2.80:80", harm)
		if diff := cmp.Diff(want, run("ipvsadm -S -n | sort")); diff != "" {
			s.Errorf("after ipvsadm %s the table was (-) and is (+):\n%s", harm, diff)
		}
	}
	s.says("events", "healed", "ipvsadm -e -t 192.0.2.80:80 -r 10.0.0.2:80 -m -w 1",
		"ipvsadm -a -t 192.0.2.80:80 -r 10.0.0.3:80 -m -w 1")
}

// hasReported waits until the daemon has reported an object the given number of
// times.
func (s *site) hasReported(times int, object, harm string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), place.Timeout)
	defer cancel()
	err := s.daemon.Client.FollowEvents(ctx, func(e api.Event) error {
		if e.Object == object {
			times--
		}
		if times == 0 {
			return errReported
		}
		return nil
	})
	if !errors.Is(err, errReported) {
		s.Fatalf("no event reports %s: %v", harm, err)
	}
}

var errReported = errors.New("the event was reported")

// split checks that the clients of a removed server are reset and counted, and
// that those of the other server continue.
func (s *site) split() {
	s.Helper()
	all := s.visit(3)
	s.daemon.Run("service", "drain", "web", "10.0.0.2", "--now")
	for _, conn := range all["10.0.0.2:80"] {
		if err := conn.SetReadDeadline(time.Now().Add(place.Timeout)); err != nil {
			s.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			s.Errorf("%s is not reset: %v", conn.LocalAddr(), err)
		}
	}
	for _, conn := range all["10.0.0.3:80"] {
		if _, err := fmt.Fprintln(conn, "hello"); err != nil {
			s.Error(err)
		}
		if by := s.hear(conn); by != "10.0.0.3:80" {
			s.Errorf("%s answers", by)
		}
	}
	s.says("events", "service web real 10.0.0.2",
		fmt.Sprintf("%d connections of clients were reset", len(all["10.0.0.2:80"])))
}
