package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

const (
	// briskRole is a proxy with few UDP flows, whose answered flows expire fast.
	// It ends soon when it has no ports.
	briskRole = "proxy-brisk"
	// curtRole is a proxy whose unanswered UDP flows expire fast. Its tests expect
	// no answers, because these can be delayed on a busy machine.
	curtRole = "proxy-curt"
)

// patience is the timeout for events that must happen, also on a busy machine.
const patience = time.Minute

// inNetns marks the run of the tests that has a separate network namespace.
const inNetns = "FAIRLEAD_TEST_NETNS"

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{
		Role: Main,
		briskRole: func() int {
			return run(limits{answered: 300 * time.Millisecond, oneDirection: time.Minute, flows: 4,
				empty: 100 * time.Millisecond})
		},
		curtRole: func() int {
			return run(limits{answered: time.Minute, oneDirection: 150 * time.Millisecond, flows: 4,
				empty: time.Minute})
		},
		parentRole: intermediateParent, keeperRole: keeper, strangerRole: stranger,
		exhaustedRole: exhausted,
	})
	if os.Getenv(inNetns) == "" {
		os.Exit(again())
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"addr", "add", "10.77.0.1/32", "dev", "lo"},
		{"addr", "add", "fd00:77::1/128", "dev", "lo", "nodad"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "ip %v: %v: %s\n", args, err, out)
			os.Exit(1)
		}
	}
	// The kernel adds the local route of an IPv6 address a little later than that of its
	// prefix.
	for deadline := time.Now().Add(patience); ; {
		route, _ := exec.Command("ip", "route", "get", "fd00:77::1").Output()
		if strings.HasPrefix(string(route), "local ") {
			break
		}
		if time.Now().After(deadline) {
			fmt.Fprintf(os.Stderr, "fd00:77::1 is not local: %s\n", route)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// again runs this test binary in a network namespace that ends with it.
func again() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inNetns+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	p, err := child.Start(context.Background(), cmd, child.Place{})
	if err == nil {
		err = p.Wait()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "run tests in a network namespace (as root):", err)
		return 1
	}
	return 0
}

// newProxy starts a proxy that ends with the test.
func newProxy(t testing.TB, role string) *Proxy {
	t.Helper()
	p, err := start(context.Background(), child.Place{}, role)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// set applies cfg and requires success.
func set(t testing.TB, p *Proxy, cfg Config) {
	t.Helper()
	if err := p.Set(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

func stats(t testing.TB, p *Proxy) model.ProxyStats {
	t.Helper()
	s, err := p.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// until polls the counters until a condition is true, or until the test times
// out.
func until(t testing.TB, p *Proxy, what string, holds func(model.ProxyStats) bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for s := stats(t, p); !holds(s); s = stats(t, p) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout: waited for %s: %+v", what, s)
		}
		time.Sleep(time.Millisecond)
	}
}

// both is the host of a listener for every address of both families.
const both = ""

// published returns a listener of one port on host that forwards to target.
func published(proto model.Proto, host string, port uint16, target netip.AddrPort) plan.Listener {
	var at netip.Addr
	if host != both {
		at = netip.MustParseAddr(host)
	}
	return plan.Listener{
		Proto: proto, Host: at, Ports: model.Port(port),
		Target: target.Addr(), TargetPorts: model.Port(target.Port()),
	}
}

// oneTCP is a configuration of a single TCP listener.
func oneTCP(host string, port uint16, target netip.AddrPort) Config {
	return Config{Listeners: []plan.Listener{published(model.TCP, host, port, target)}}
}

// serveTCP answers connections on a free port of host until the test ends.
func serveTCP(t testing.TB, host string, handle func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	return serveOn(t, netip.AddrPortFrom(netip.MustParseAddr(host), 0), handle)
}

func serveOn(t testing.TB, at netip.AddrPort, handle func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }

// dial connects to a published port; the connection ends with the test.
func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// exchange sends a message over an echoing connection and requires it back.
func exchange(t testing.TB, c io.ReadWriter, message string) {
	t.Helper()
	if _, err := io.WriteString(c, message); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(message))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != message {
		t.Fatalf("got %q, %v; want %q", got, err, message)
	}
}
