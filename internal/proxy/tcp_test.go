package proxy

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

func TestTCPEchoesAcrossFamilies(t *testing.T) {
	for _, c := range []struct{ name, host, dial, target string }{
		{"v4", "127.0.0.1", "127.0.0.1:8001", "127.0.0.1"},
		{"v6", "::1", "[::1]:8001", "::1"},
		{"v6 to v4", "::1", "[::1]:8001", "127.0.0.1"},
		{"v4 to v6", "0.0.0.0", "10.77.0.1:8001", "fd00:77::1"},
		{"every v6", "::", "[fd00:77::1]:8001", "127.0.0.1"},
		{"both families, v4 client", both, "10.77.0.1:8001", "127.0.0.1"},
		{"both families, v6 client", both, "[fd00:77::1]:8001", "127.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProxy(t, Role)
			set(t, p, oneTCP(c.host, 8001, serveTCP(t, c.target, echo)))
			conn := dial(t, c.dial)
			exchange(t, conn, "hello")
			exchange(t, conn, "again")
			until(t, p, "everything to be counted", func(s model.ProxyStats) bool {
				return s.Accepted == 1 && s.Connections == 1 && s.BytesIn == 10 && s.BytesOut == 10
			})
			conn.Close()
			until(t, p, "the connection to end", func(s model.ProxyStats) bool { return s.Connections == 0 })
		})
	}
}

func TestServerMaySpeakFirst(t *testing.T) {
	p := newProxy(t, Role)
	set(t, p, oneTCP("127.0.0.1", 8001, serveTCP(t, "127.0.0.1", func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "220 ready\r\n")
	})))
	if got, err := io.ReadAll(dial(t, "127.0.0.1:8001")); err != nil || string(got) != "220 ready\r\n" {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestHalfCloseByClient(t *testing.T) {
	p := newProxy(t, Role)
	set(t, p, oneTCP("127.0.0.1", 8001, serveTCP(t, "127.0.0.1", func(c *net.TCPConn) {
		asked, _ := io.ReadAll(c)
		_, _ = io.WriteString(c, "asked: "+string(asked))
	})))
	c := dial(t, "127.0.0.1:8001")
	if _, err := io.WriteString(c, "what?"); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "asked: what?" {
		t.Fatalf("got %q, %v", got, err)
	}
	until(t, p, "the connection to end", func(s model.ProxyStats) bool { return s.Connections == 0 })
}

func TestHalfCloseByServer(t *testing.T) {
	p := newProxy(t, Role)
	heard := make(chan string, 1)
	set(t, p, oneTCP("127.0.0.1", 8001, serveTCP(t, "127.0.0.1", func(c *net.TCPConn) {
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c)
		heard <- string(all)
	})))
	c := dial(t, "127.0.0.1:8001")
	if got, err := io.ReadAll(c); err != nil || len(got) != 0 {
		t.Fatalf("got %q, %v; want the end of the stream", got, err)
	}
	if _, err := io.WriteString(c, "still here"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if got := <-heard; got != "still here" {
		t.Fatalf("the server received %q", got)
	}
}

func TestResetByServerReachesClient(t *testing.T) {
	p := newProxy(t, Role)
	set(t, p, oneTCP("127.0.0.1", 8001, serveTCP(t, "127.0.0.1", func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetLinger(0)
	})))
	c := dial(t, "127.0.0.1:8001")
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %v, want a reset", err)
	}
}

func TestResetByClientReachesServer(t *testing.T) {
	p := newProxy(t, Role)
	seen := make(chan error, 1)
	set(t, p, oneTCP("127.0.0.1", 8001, serveTCP(t, "127.0.0.1", func(c *net.TCPConn) {
		_, _ = c.Write([]byte("x"))
		_, err := c.Read(make([]byte, 1))
		seen <- err
	})))
	c := dial(t, "127.0.0.1:8001")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	_ = c.SetLinger(0)
	c.Close()
	if err := <-seen; !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("server saw %v, want a reset", err)
	}
}

func TestRefusedTargetResetsClient(t *testing.T) {
	p := newProxy(t, Role)
	set(t, p, oneTCP("127.0.0.1", 8001, netip.MustParseAddrPort("127.0.0.1:9")))
	c, err := net.Dial("tcp", "127.0.0.1:8001")
	if err == nil {
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %v, want a reset", err)
	}
	until(t, p, "the connection to end", func(s model.ProxyStats) bool { return s.Connections == 0 })
}

// TestBulkIsIntact sends 100 MB in chunks of random size to a reader that
// reads them in small pieces, so that the proxy must slow the sender down.
func TestBulkIsIntact(t *testing.T) {
	const total = 100 << 20
	p := newProxy(t, Role)
	sum := make(chan [32]byte, 1)
	set(t, p, oneTCP("127.0.0.1", 8001, serveTCP(t, "127.0.0.1", func(c *net.TCPConn) {
		// With a buffer below a few loopback segments, TCP itself would be very slow.
		_ = c.SetReadBuffer(256 << 10)
		hash, bite := sha256.New(), make([]byte, 3000)
		_, _ = io.CopyBuffer(hash, struct{ io.Reader }{c}, bite)
		sum <- [32]byte(hash.Sum(nil))
	})))
	c := dial(t, "127.0.0.1:8001")
	hash, source := sha256.New(), rand.NewChaCha8([32]byte{7})
	sizes := rand.New(source)
	for left := total; left > 0; {
		chunk := make([]byte, min(left, 1+sizes.IntN(1<<uint(4+sizes.IntN(16)))))
		_, _ = source.Read(chunk)
		hash.Write(chunk)
		if _, err := c.Write(chunk); err != nil {
			t.Fatal(err)
		}
		left -= len(chunk)
	}
	_ = c.CloseWrite()
	if got := <-sum; got != [32]byte(hash.Sum(nil)) {
		t.Fatal("the target received other bytes than were sent")
	}
	if s := stats(t, p); s.BytesIn != total {
		t.Errorf("counted %d bytes, want %d", s.BytesIn, total)
	}
}

// TestStalledReaderStopsSender checks that one stopped reader neither loses bytes nor
// disturbs another connection of the same worker.
func TestStalledReaderStopsSender(t *testing.T) {
	const total = 32 << 20
	p := newProxy(t, Role)
	goOn := make(chan struct{})
	count := make(chan int64, 1)
	slow := serveTCP(t, "127.0.0.1", func(c *net.TCPConn) {
		<-goOn
		n, _ := io.Copy(io.Discard, c)
		count <- n
	})
	fast := serveTCP(t, "127.0.0.1", echo)
	set(t, p, Config{Listeners: []plan.Listener{
		published(model.TCP, "127.0.0.1", 8001, slow), published(model.TCP, "127.0.0.1", 8002, fast),
	}})
	c := dial(t, "127.0.0.1:8001")
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, total))
		_ = c.CloseWrite()
		sent <- err
	}()
	until(t, p, "the stalled stream to fill its buffers", func(s model.ProxyStats) bool { return s.BytesIn > 1<<20 })
	for range 8 {
		exchange(t, dial(t, "127.0.0.1:8002"), "not disturbed")
	}
	close(goOn)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if n := <-count; n != total {
		t.Fatalf("target got %d bytes, want %d", n, total)
	}
}

func TestManyConnectionsAtOnce(t *testing.T) {
	p := newProxy(t, Role)
	set(t, p, oneTCP("127.0.0.1", 8001, serveTCP(t, "127.0.0.1", echo)))
	conns := make([]*net.TCPConn, 500)
	for i := range conns {
		conns[i] = dial(t, "127.0.0.1:8001")
	}
	for _, c := range conns {
		exchange(t, c, "one of many")
	}
	if s := stats(t, p); s.Connections != uint64(len(conns)) {
		t.Errorf("%d connections, want %d", s.Connections, len(conns))
	}
	for _, c := range conns {
		c.Close()
	}
	until(t, p, "all connections to end", func(s model.ProxyStats) bool { return s.Connections == 0 })
}

func TestRangeForwardsPortByPort(t *testing.T) {
	p := newProxy(t, Role)
	for _, port := range []uint16{9100, 9150, 9199} {
		serveOn(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port), func(c *net.TCPConn) {
			_, _ = io.WriteString(c, c.LocalAddr().String())
		})
	}
	set(t, p, Config{Listeners: []plan.Listener{{
		Proto: model.TCP, Host: netip.MustParseAddr("0.0.0.0"), Ports: model.PortRange{First: 8100, Last: 8199},
		Target: netip.MustParseAddr("127.0.0.1"), TargetPorts: model.PortRange{First: 9100, Last: 9199},
	}}})
	for at, want := range map[string]string{
		"127.0.0.1:8100": "127.0.0.1:9100", "127.0.0.1:8150": "127.0.0.1:9150", "127.0.0.1:8199": "127.0.0.1:9199",
	} {
		if got, err := io.ReadAll(dial(t, at)); err != nil || string(got) != want {
			t.Errorf("%s forwards to %q (%v), want %s", at, got, err, want)
		}
	}
}

// TestPortsInTimeWaitAreReused makes more connections than the proxy has
// local ports. The target is not on a loopback address, for which the kernel
// would reuse them by itself.
func TestPortsInTimeWaitAreReused(t *testing.T) {
	const ports, few = "/proc/sys/net/ipv4/ip_local_port_range", 1100
	usual, err := os.ReadFile(ports)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(ports, usual, 0) })
	target := serveOn(t, netip.MustParseAddrPort("10.77.0.1:9001"), echo)
	if err := os.WriteFile(ports, fmt.Appendf(nil, "40000 %d", 40000+few), 0); err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, Role)
	set(t, p, oneTCP("10.77.0.1", 8001, target))
	for i := range 2 * few {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(10, 77, 0, 1), Port: 20000 + i},
			Control: reuseAddress(true)}
		c, err := from.Dial("tcp", "10.77.0.1:8001")
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, c, "one of many")
		c.Close()
	}
	until(t, p, "the connections to end", func(s model.ProxyStats) bool { return s.Connections == 0 })
}
