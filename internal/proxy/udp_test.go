package proxy

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	children "fairlead/test/process"
)

// serveUDP answers each datagram with the result of reply.
func serveUDP(t testing.TB, at string, reply func(from netip.AddrPort, b []byte) []byte) netip.AddrPort {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		for b := make([]byte, 1<<16); ; {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
				return
			}
			if answer := reply(from, b[:n]); answer != nil {
				_, _ = c.WriteToUDPAddrPort(answer, from)
			}
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func echoUDP(_ netip.AddrPort, b []byte) []byte { return b }

// dialUDP connects, so that only answers from exactly addr are received.
func dialUDP(t testing.TB, addr string) *net.UDPConn {
	t.Helper()
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.UDPConn)
}

// ask sends one datagram and requires want as the answer.
func ask(t testing.TB, c *net.UDPConn, question, want string) {
	t.Helper()
	if _, err := c.Write([]byte(question)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<16)
	if n, err := c.Read(b); err != nil || string(b[:n]) != want {
		t.Fatalf("asked %.20q: got %.20q, %v", question, b[:n], err)
	}
}

func oneUDP(host string, port uint16, target netip.AddrPort) Config {
	return Config{Listeners: []plan.Listener{published(model.UDP, host, port, target)}}
}

// TestUDPAnswersFromTheAddressAsked relies on connected clients: the kernel
// gives them no answer that comes from another address.
func TestUDPAnswersFromTheAddressAsked(t *testing.T) {
	for _, c := range []struct {
		name, host, target string
		dial               []string
	}{
		{"every v4", "0.0.0.0", "127.0.0.1:0", []string{"127.0.0.1:8053", "127.0.0.9:8053", "10.77.0.1:8053"}},
		{"every v6", "::", "[::1]:0", []string{"[::1]:8053", "[fd00:77::1]:8053"}},
		{"both families", both, "127.0.0.1:0",
			[]string{"127.0.0.1:8053", "10.77.0.1:8053", "[::1]:8053", "[fd00:77::1]:8053"}},
		{"one v4 to v6", "10.77.0.1", "[::1]:0", []string{"10.77.0.1:8053"}},
		{"every v6 to v4", "::", "127.0.0.1:0", []string{"[fd00:77::1]:8053"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProxy(t, Role)
			set(t, p, oneUDP(c.host, 8053, serveUDP(t, c.target, echoUDP)))
			for _, addr := range c.dial {
				a, b := dialUDP(t, addr), dialUDP(t, addr)
				ask(t, a, "from a", "from a")
				ask(t, b, "from b", "from b")
				ask(t, a, "a again", "a again")
			}
			until(t, p, "all datagrams to be counted", func(s model.ProxyStats) bool {
				n := uint64(len(c.dial))
				return s.Flows == 2*n && s.DatagramsIn == 3*n && s.DatagramsOut == 3*n && s.BytesIn == 19*n &&
					s.BytesOut == 19*n
			})
		})
	}
}

// TestOneClientTwoAddresses: an unconnected client sends from one port to two
// addresses of the proxy, and gets each answer from the address that it sent to.
func TestOneClientTwoAddresses(t *testing.T) {
	p := newProxy(t, Role)
	set(t, p, oneUDP("0.0.0.0", 8053, serveUDP(t, "127.0.0.1:0", echoUDP)))
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, to := range []string{"127.0.0.2:8053", "127.0.0.3:8053", "127.0.0.2:8053"} {
		if _, err := c.WriteToUDPAddrPort([]byte(to), netip.MustParseAddrPort(to)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, from, err := c.ReadFromUDPAddrPort(b)
		if err != nil || from.String() != to || string(b[:n]) != to {
			t.Errorf("asked %s: got %q from %s (%v)", to, b[:n], from, err)
		}
	}
}

func TestUDPSizes(t *testing.T) {
	p := newProxy(t, Role)
	set(t, p, oneUDP("127.0.0.1", 8053, serveUDP(t, "127.0.0.1:0", echoUDP)))
	c := dialUDP(t, "127.0.0.1:8053")
	for _, size := range []int{0, 1, 1472, 9000, 65507} {
		want := string(bytes.Repeat([]byte{byte(size)}, size))
		ask(t, c, want, want)
	}
}

// TestUDPBoundariesUnderBurst queues datagrams of many sizes while the proxy is
// stopped, so that it then forwards them with as few calls as possible. Each must come
// back unchanged. With a small MTU the larger ones cannot be sent as segments, and are
// sent as fragments.
func TestUDPBoundariesUnderBurst(t *testing.T) {
	for _, mtu := range []string{"65536", "1500"} {
		t.Run("mtu "+mtu, func(t *testing.T) {
			setLoopbackMTU(t, mtu)
			p := newProxy(t, Role)
			set(t, p, oneUDP("0.0.0.0", 8053, serveUDP(t, "127.0.0.1:0", echoUDP)))
			c := dialUDP(t, "127.0.0.1:8053")
			sizes := []int{100, 100, 100, 100, 50, 0, 0, 1, 2, 3, 9000, 9000, 9000, 1472, 1472, 1473, 1473, 4000, 10,
				10}
			stopped(t, p, func() {
				for i, size := range sizes {
					if _, err := c.Write(bytes.Repeat([]byte{byte(i)}, size)); err != nil {
						t.Fatal(err)
					}
				}
			})
			b := make([]byte, 1<<16)
			for i, size := range sizes {
				n, err := c.Read(b)
				if err != nil || !bytes.Equal(b[:n], bytes.Repeat([]byte{byte(i)}, size)) {
					t.Fatalf("datagram %d of %d bytes came back as %d bytes (%v)", i, size, n, err)
				}
			}
			n := uint64(len(sizes))
			until(t, p, "all to be counted", func(s model.ProxyStats) bool {
				return s.DatagramsIn == n &&
					s.DatagramsOut == n
			})
		})
	}
}

// stopped calls do while the proxy is stopped.
func stopped(t *testing.T, p *Proxy, do func()) {
	t.Helper()
	goOn := children.Pause(t, p.PID())
	do()
	goOn()
}

func setLoopbackMTU(t *testing.T, mtu string) {
	t.Helper()
	set := func(mtu string) {
		if out, err := exec.Command("ip", "link", "set", "lo", "mtu", mtu).CombinedOutput(); err != nil {
			t.Fatalf("set MTU: %v: %s", err, out)
		}
	}
	set(mtu)
	t.Cleanup(func() { set("65536") })
}

func TestUDPFlowsExpire(t *testing.T) {
	curt, p := newProxy(t, curtRole), newProxy(t, briskRole)
	set(t, curt, oneUDP("127.0.0.1", 8053,
		serveUDP(t, "127.0.0.1:0", func(netip.AddrPort, []byte) []byte { return nil })))
	if _, err := dialUDP(t, "127.0.0.1:8053").Write([]byte("anyone?")); err != nil {
		t.Fatal(err)
	}
	until(t, curt, "the one-way flow to begin and to expire",
		func(s model.ProxyStats) bool { return s.Opened == 1 && s.Flows == 0 })
	set(t, p, oneUDP("127.0.0.1", 8054, serveUDP(t, "127.0.0.1:0", echoUDP)))
	c := dialUDP(t, "127.0.0.1:8054")
	ask(t, c, "hello", "hello")
	until(t, p, "the answered flow to expire", func(s model.ProxyStats) bool { return s.Opened == 1 && s.Flows == 0 })
	ask(t, c, "hello again", "hello again")
}

// TestUDPFlowsAreBounded opens more flows than the brisk proxy may have.
func TestUDPFlowsAreBounded(t *testing.T) {
	p := newProxy(t, briskRole)
	set(t, p, oneUDP("127.0.0.1", 8053, serveUDP(t, "127.0.0.1:0", echoUDP)))
	for range 20 {
		ask(t, dialUDP(t, "127.0.0.1:8053"), "me too", "me too")
		if s := stats(t, p); s.Flows > 4 {
			t.Fatalf("%d flows, want no more than 4", s.Flows)
		}
	}
}

// TestRefusedDatagramSparesFlow: ICMP reports that the target port is closed. Then a
// server binds it, and the same flow reaches the server.
func TestRefusedDatagramSparesFlow(t *testing.T) {
	p := newProxy(t, Role)
	set(t, p, oneUDP("127.0.0.1", 8053, netip.MustParseAddrPort("127.0.0.1:9053")))
	c := dialUDP(t, "127.0.0.1:8053")
	for i := range uint64(5) {
		if _, err := c.Write([]byte("still closed")); err != nil {
			t.Fatal(err)
		}
		until(t, p, "the datagram to be sent", func(s model.ProxyStats) bool { return s.DatagramsIn == i+1 })
	}
	serveUDP(t, "127.0.0.1:9053", echoUDP)
	ask(t, c, "now?", "now?")
	if s := stats(t, p); s.Flows != 1 {
		t.Errorf("%d flows, want the same one", s.Flows)
	}
}
