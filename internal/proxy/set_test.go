package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// reserved returns a reservation of one port.
func reserved(proto model.Proto, host string, port uint16) plan.Reservation {
	return plan.Reservation{Proto: proto, Host: netip.MustParseAddr(host), Ports: model.Port(port)}
}

// bind tries to bind an address like another program; reuse sets SO_REUSEADDR.
// The socket is closed when the test ends.
func bind(t *testing.T, proto model.Proto, addr string, reuse bool) (net.PacketConn, io.Closer, error) {
	t.Helper()
	lc := net.ListenConfig{Control: reuseAddress(reuse)}
	family := "4"
	if netip.MustParseAddrPort(addr).Addr().Is6() {
		family = "6"
	}
	if proto == model.UDP {
		c, err := lc.ListenPacket(context.Background(), "udp"+family, addr)
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		return c, c, err
	}
	l, err := lc.Listen(context.Background(), "tcp"+family, addr)
	if err == nil {
		t.Cleanup(func() { l.Close() })
	}
	return nil, l, err
}

// reuseAddress sets SO_REUSEADDR before a socket is bound.
func reuseAddress(reuse bool) func(_, _ string, c syscall.RawConn) error {
	on := 0
	if reuse {
		on = 1
	}
	return func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, on)
		})
	}
}

// mustBeTaken requires that another program cannot bind the address.
func mustBeTaken(t *testing.T, proto model.Proto, addr string) {
	t.Helper()
	for _, reuse := range []bool{false, true} {
		if _, c, err := bind(t, proto, addr, reuse); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("bind %s/%s (reuse %v): got %v, want it taken", addr, proto, reuse, err)
			if err == nil {
				c.Close()
			}
		}
	}
}

// mustBeFree requires that another program can bind the address.
func mustBeFree(t *testing.T, proto model.Proto, addr string) {
	t.Helper()
	_, c, err := bind(t, proto, addr, true)
	if err != nil {
		t.Errorf("bind %s/%s: %v, want it free", addr, proto, err)
		return
	}
	c.Close()
}

func TestReservationBlocksPort(t *testing.T) {
	for _, proto := range []model.Proto{model.TCP, model.UDP} {
		t.Run(string(proto), func(t *testing.T) {
			p := newProxy(t, Role)
			set(t, p, Config{Reservations: []plan.Reservation{reserved(proto, "0.0.0.0", 8080),
				reserved(proto, "::", 8080)}})
			mustBeTaken(t, proto, "0.0.0.0:8080")
			mustBeTaken(t, proto, "10.77.0.1:8080")
			mustBeTaken(t, proto, "[::]:8080")
			mustBeTaken(t, proto, "[::1]:8080")
			set(t, p, Config{})
			mustBeFree(t, proto, "0.0.0.0:8080")
			mustBeFree(t, proto, "[::1]:8080")
		})
	}
}

func TestReservedTCPPortRefuses(t *testing.T) {
	p := newProxy(t, Role)
	set(t, p, Config{Reservations: []plan.Reservation{reserved(model.TCP, "0.0.0.0", 8080)}})
	if _, err := net.Dial("tcp", "127.0.0.1:8080"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want a refusal", err)
	}
}

// TestReservationBesideListener: a reservation and a listener may overlap, in any
// order.
func TestReservationBesideListener(t *testing.T) {
	for _, proto := range []model.Proto{model.TCP, model.UDP} {
		t.Run(string(proto), func(t *testing.T) {
			target, check := echoTarget(t, proto)
			listener := Config{Listeners: []plan.Listener{published(proto, "::1", 8080, target)}}
			reservation := Config{Reservations: []plan.Reservation{reserved(proto, "::", 8080),
				reserved(proto, "0.0.0.0", 8080)}}
			both := Config{Listeners: listener.Listeners, Reservations: reservation.Reservations}
			for _, c := range []struct {
				name  string
				first Config
			}{{"at once", Config{}}, {"listener first", listener}, {"reservation first", reservation}} {
				t.Run(c.name, func(t *testing.T) {
					p := newProxy(t, Role)
					set(t, p, c.first)
					set(t, p, both)
					check(t, "[::1]:8080")
					mustBeTaken(t, proto, "[::]:8080")
					mustBeTaken(t, proto, "[::1]:8080")
					mustBeTaken(t, proto, "[fd00:77::1]:8080")
					mustBeTaken(t, proto, "127.0.0.1:8080")
					set(t, p, reservation)
					mustBeTaken(t, proto, "[::1]:8080")
					set(t, p, listener)
					check(t, "[::1]:8080")
					mustBeTaken(t, proto, "[::1]:8080")
					mustBeFree(t, proto, "[fd00:77::1]:8080")
				})
			}
		})
	}
}

// echoTarget returns an echo server, and a check that a published address
// forwards to it.
func echoTarget(t *testing.T, proto model.Proto) (netip.AddrPort, func(*testing.T, string)) {
	if proto == model.TCP {
		return serveTCP(t, "127.0.0.1", echo), func(t *testing.T, addr string) {
			t.Helper()
			exchange(t, dial(t, addr), "over tcp")
		}
	}
	return serveUDP(t, "127.0.0.1:0", echoUDP), func(t *testing.T, addr string) {
		t.Helper()
		ask(t, dialUDP(t, addr), "over udp", "over udp")
	}
}

// TestDualListenerBlocksBothFamilies: with a listener of both families, no other
// program can bind the port in either family. The listener is refused while
// another program has the port in either family. Narrower listeners of the next
// configuration can replace it. No other test has connections to this port:
// their remains would make the other program's bind fail.
func TestDualListenerBlocksBothFamilies(t *testing.T) {
	for _, proto := range []model.Proto{model.TCP, model.UDP} {
		target, _ := echoTarget(t, proto)
		wide := Config{Listeners: []plan.Listener{published(proto, both, 8021, target)}}
		for _, addr := range []string{"0.0.0.0:8021", "10.77.0.1:8021", "[::]:8021", "[fd00:77::1]:8021"} {
			t.Run(string(proto)+" "+addr, func(t *testing.T) {
				p := newProxy(t, Role)
				_, stranger, err := bind(t, proto, addr, false)
				if err != nil {
					t.Fatal(err)
				}
				wantBindError(t, p.Set(context.Background(), wide), proto, "[::]:8021", syscall.EADDRINUSE)
				stranger.Close()
				set(t, p, wide)
				mustBeTaken(t, proto, addr)
				narrow := published(proto, netip.MustParseAddrPort(addr).Addr().String(), 8021, target)
				set(t, p, Config{Listeners: []plan.Listener{narrow}})
				mustBeTaken(t, proto, addr)
				set(t, p, wide)
				mustBeTaken(t, proto, "0.0.0.0:8021")
			})
		}
	}
}

// TestOtherProcessUnderNewWildcard: a wildcard reservation over a listener of
// the proxy fails if another process has the port at another address.
func TestOtherProcessUnderNewWildcard(t *testing.T) {
	for _, proto := range []model.Proto{model.TCP, model.UDP} {
		t.Run(string(proto), func(t *testing.T) {
			target, check := echoTarget(t, proto)
			p := newProxy(t, Role)
			cfg := Config{Listeners: []plan.Listener{published(proto, "127.0.0.1", 8080, target)}}
			set(t, p, cfg)
			_, stranger, err := bind(t, proto, "10.77.0.1:8080", true)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Reservations = []plan.Reservation{reserved(proto, "0.0.0.0", 8080)}
			wantBindError(t, p.Set(t.Context(), cfg), proto, "0.0.0.0:8080", syscall.EADDRINUSE)
			check(t, "127.0.0.1:8080")
			stranger.Close()
			set(t, p, cfg)
			mustBeTaken(t, proto, "10.77.0.1:8080")
		})
	}
}

func wantBindError(t *testing.T, err error, proto model.Proto, addr string, errno syscall.Errno) {
	t.Helper()
	var bind *BindError
	if !errors.As(err, &bind) || bind.Proto != proto || bind.Addr != netip.MustParseAddrPort(addr) ||
		!errors.Is(err, errno) {
		t.Fatalf("got %v, want a BindError for %s/%s: %v", err, addr, proto, errno)
	}
}

// TestConflictChangesNothing: the last of several new ports is taken.
func TestConflictChangesNothing(t *testing.T) {
	for _, reuse := range []bool{false, true} {
		for _, proto := range []model.Proto{model.TCP, model.UDP} {
			target, check := echoTarget(t, proto)
			p := newProxy(t, Role)
			old := published(proto, "127.0.0.1", 8001, target)
			set(t, p, Config{Listeners: []plan.Listener{old}})
			_, stranger, err := bind(t, proto, "127.0.0.1:8004", reuse)
			if err != nil {
				t.Fatal(err)
			}
			l := published(proto, "127.0.0.1", 8002, target)
			l.Ports.Last, l.TargetPorts.Last = 8004, l.TargetPorts.First+2
			wantBindError(t, p.Set(t.Context(), Config{Listeners: []plan.Listener{l}}), proto, "127.0.0.1:8004",
				syscall.EADDRINUSE)
			r := plan.Reservation{Proto: proto, Host: l.Host, Ports: l.Ports}
			wantBindError(t, p.Set(t.Context(), Config{Reservations: []plan.Reservation{r}}), proto, "127.0.0.1:8004",
				syscall.EADDRINUSE)
			check(t, "127.0.0.1:8001")
			mustBeFree(t, proto, "127.0.0.1:8002")
			mustBeFree(t, proto, "127.0.0.1:8003")
			stranger.Close()
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAddressOfAnotherHost(t *testing.T) {
	p := newProxy(t, Role)
	err := p.Set(t.Context(), oneTCP("192.0.2.77", 8001, netip.MustParseAddrPort("127.0.0.1:9")))
	wantBindError(t, err, model.TCP, "192.0.2.77:8001", syscall.EADDRNOTAVAIL)
}

// TestBoundNotListening: a port that another process has bound but does not
// listen on is refused, unless that process has set SO_REUSEADDR. Then the kernel
// permits the reservation, and the other process can no longer listen.
func TestBoundNotListening(t *testing.T) {
	p := newProxy(t, Role)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: 8091, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Reservations: []plan.Reservation{reserved(model.TCP, "0.0.0.0", 8091)}}
	wantBindError(t, p.Set(t.Context(), cfg), model.TCP, "0.0.0.0:8091", syscall.EADDRINUSE)
	wantBindError(t, p.Set(t.Context(), oneTCP("0.0.0.0", 8091, netip.MustParseAddrPort("127.0.0.1:9"))), model.TCP,
		"0.0.0.0:8091", syscall.EADDRINUSE)
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	set(t, p, cfg)
	if err := syscall.Listen(fd, 1); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listen of the other process: got %v, want EADDRINUSE", err)
	}
	mustBeTaken(t, model.TCP, "127.0.0.1:8091")
}

// TestTimeWaitDoesNotBlock: connections that a listener closed first remain
// in TIME_WAIT. They do not prevent a new listener or a reservation.
func TestTimeWaitDoesNotBlock(t *testing.T) {
	target := serveTCP(t, "127.0.0.1", func(c *net.TCPConn) {})
	leave := func() {
		p := newProxy(t, Role)
		set(t, p, oneTCP("127.0.0.1", 8001, target))
		if _, err := io.ReadAll(dial(t, "127.0.0.1:8001")); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	leave()
	p := newProxy(t, Role)
	set(t, p, Config{Reservations: []plan.Reservation{reserved(model.TCP, "0.0.0.0", 8001)}})
	mustBeTaken(t, model.TCP, "127.0.0.1:8001")
}

func TestSameSetKeepsConnections(t *testing.T) {
	p := newProxy(t, Role)
	tcp, udp := serveTCP(t, "127.0.0.1", echo), serveUDP(t, "127.0.0.1:0", echoUDP)
	cfg := Config{
		Listeners: []plan.Listener{published(model.TCP, "127.0.0.1", 8001, tcp),
			published(model.UDP, "127.0.0.1", 8001, udp)},
		Reservations: []plan.Reservation{reserved(model.TCP, "0.0.0.0", 8003)},
	}
	set(t, p, cfg)
	c, u := dial(t, "127.0.0.1:8001"), dialUDP(t, "127.0.0.1:8001")
	exchange(t, c, "before")
	ask(t, u, "before", "before")
	set(t, p, cfg)
	more := published(model.TCP, "127.0.0.1", 8002, tcp)
	set(t, p, Config{Listeners: append(cfg.Listeners, more)})
	exchange(t, c, "after")
	ask(t, u, "after", "after")
	if s := stats(t, p); s.Accepted != 1 || s.Flows != 1 {
		t.Errorf("counters: %+v", s)
	}
}

func TestRemovalEndsConnections(t *testing.T) {
	p := newProxy(t, Role)
	tcp, udp := serveTCP(t, "127.0.0.1", echo), serveUDP(t, "127.0.0.1:0", echoUDP)
	stays, goes := published(model.TCP, "127.0.0.1", 8001, tcp), published(model.TCP, "127.0.0.1", 8002, tcp)
	set(t, p, Config{Listeners: []plan.Listener{stays, goes, published(model.UDP, "127.0.0.1", 8003, udp)}})
	a, b := dial(t, "127.0.0.1:8001"), dial(t, "127.0.0.1:8002")
	exchange(t, a, "stays")
	exchange(t, b, "goes")
	ask(t, dialUDP(t, "127.0.0.1:8003"), "goes", "goes")
	set(t, p, Config{Listeners: []plan.Listener{stays}})
	if _, err := b.Read(make([]byte, 1)); err == nil {
		t.Error("the connection of the removed listener continues")
	}
	exchange(t, a, "still here")
	if s := stats(t, p); s.Connections != 1 || s.Flows != 0 {
		t.Errorf("counters: %+v", s)
	}
	mustBeFree(t, model.TCP, "127.0.0.1:8002")
	mustBeFree(t, model.UDP, "127.0.0.1:8003")
}

// TestNewTargetTakesOverPort: the port stays bound while its target changes, and
// while it becomes a reservation and a listener again.
func TestNewTargetTakesOverPort(t *testing.T) {
	p := newProxy(t, Role)
	say := func(word string) netip.AddrPort {
		return serveTCP(t, "127.0.0.1", func(c *net.TCPConn) { _, _ = io.WriteString(c, word) })
	}
	a, b := say("a"), say("b")
	hear := func(want string) {
		t.Helper()
		if got, err := io.ReadAll(dial(t, "127.0.0.1:8001")); err != nil || string(got) != want {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	}
	reservation := Config{Reservations: []plan.Reservation{reserved(model.TCP, "0.0.0.0", 8001)}}
	set(t, p, oneTCP("0.0.0.0", 8001, a))
	hear("a")
	set(t, p, oneTCP("0.0.0.0", 8001, b))
	hear("b")
	set(t, p, reservation)
	if _, err := net.Dial("tcp", "127.0.0.1:8001"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("got %v, want a refusal", err)
	}
	mustBeTaken(t, model.TCP, "127.0.0.1:8001")
	set(t, p, oneTCP("0.0.0.0", 8001, a))
	hear("a")
	set(t, p, oneTCP("127.0.0.1", 8001, b))
	hear("b")
	mustBeFree(t, model.TCP, "10.77.0.1:8001")
	set(t, p, oneTCP("0.0.0.0", 8001, a))
	hear("a")
}
