package place_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/test/place"
	"fairlead/test/shell"
)

// dial opens a connection that is closed after the test, and has a deadline.
func dial(t *testing.T, from place.Place, network, addr string) net.Conn {
	t.Helper()
	conn, err := place.Dial(from, network, addr, place.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(place.Timeout)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestAnswer sends two requests to a server over each protocol and family.
func TestAnswer(t *testing.T) {
	ns := kerneltest.Netns(t)
	place.Answer(t, ns.Do, ":80", func(r place.Request) string {
		return fmt.Sprint("web ", r.Client.Addr(), " ", r.Text)
	})
	for _, network := range []string{"tcp", "udp"} {
		for addr, client := range map[string]string{"127.0.0.1:80": "127.0.0.1", "[::1]:80": "::1"} {
			conn := dial(t, ns.Do, network, addr)
			lines := bufio.NewReader(conn)
			for _, text := range []string{"one", "two"} {
				if _, err := fmt.Fprintln(conn, text); err != nil {
					t.Fatal(err)
				}
				want := "web " + client + " " + text + "\n"
				if got, err := lines.ReadString('\n'); err != nil || got != want {
					t.Errorf("%s %s answers %q, %v; want %q", network, addr, got, err, want)
				}
			}
		}
	}
}

// TestServe checks that a server listens only in its place, and at an address of IPv4 only for IPv4.
func TestServe(t *testing.T) {
	ns, other := kerneltest.Netns(t), kerneltest.Netns(t)
	stop := place.Serve(t, ns.Do, "0.0.0.0:80", place.Echo)
	conn := dial(t, ns.Do, "tcp", "127.0.0.1:80")
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("echoed %q, %v", got, err)
	}
	refused(t, ns.Do, "[::1]:80")
	refused(t, other.Do, "127.0.0.1:80")
	stop()
	refused(t, ns.Do, "127.0.0.1:80")
}

func refused(t *testing.T, from place.Place, addr string) {
	t.Helper()
	conn, err := place.Dial(from, "tcp", addr, place.Timeout)
	if err == nil {
		conn.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%s: %v, want a refusal", addr, err)
	}
}

// TestServeUDP checks that a datagram is echoed.
func TestServeUDP(t *testing.T) {
	ns := kerneltest.Netns(t)
	place.ServeUDP(t, ns.Do, "127.0.0.1:53", place.EchoDatagram)
	conn := dial(t, ns.Do, "udp", "127.0.0.1:53")
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 9)
	if n, err := conn.Read(got); err != nil || string(got[:n]) != "hello" {
		t.Errorf("echoed %q, %v", got[:n], err)
	}
}

// TestUnchanged checks that snapshots differ in what is added to a host.
func TestUnchanged(t *testing.T) {
	ns := kerneltest.Netns(t)
	before := place.Snapshot(t, ns.Do)
	place.Unchanged(t, ns.Do, before)
	for _, add := range []string{
		"ip link add fl0 type bridge", "ip link set fl0 mtu 1400", "ip addr add 192.0.2.1/32 dev fl0",
		"ip addr add 2001:db8::1/128 dev fl0",
		"ip route add blackhole 198.51.100.0/24", "ip route add unreachable 2001:db8:1::/64",
		"ip route add broadcast 198.51.100.1 dev lo table local", "ip rule add from 192.0.2.0/24 lookup 7",
		"ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev fl0 nud permanent",
		"ip neigh add 2001:db8::2 lladdr 02:00:00:00:00:02 dev fl0 nud permanent",
		"ip neigh add proxy 192.0.2.3 dev fl0", "ip neigh add proxy 2001:db8::3 dev fl0",
		"bridge fdb add 02:00:00:00:00:04 dev fl0 self", "nft add table inet fairlead",
		"sysctl -qw net.ipv4.ip_forward=1", "sysctl -qw net.ipv6.conf.all.forwarding=1",
		"sysctl -qw net.ipv4.conf.all.rp_filter=2"} {
		shell.Run(t, ns.Do, add)
		now := place.Snapshot(t, ns.Do)
		if now == before {
			t.Errorf("after %s the snapshot is the same", add)
		}
		before = now
	}
}
