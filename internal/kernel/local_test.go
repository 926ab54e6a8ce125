package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"

	"fairlead/internal/cgroup"
	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/plan"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// published are port mappings from port 80 to the endpoint of the same family, from
// port 90 on IPv6 to IPv4, and from port 92 on IPv4 to IPv6.
var published = slices.Concat(
	toBox("0.0.0.0", 80, "10.9.0.2"), toBox("::", 80, "fd09::2"),
	toBox("::", 90, "10.9.0.2"), toBox("0.0.0.0", 92, "fd09::2"),
)

// mappedCalls are calls that the programs translate.
var mappedCalls = []struct {
	dial string
	// reported is the peer address that the process gets from the kernel.
	reported string
	reached  string
	// connected means that only a connected socket can be translated.
	connected bool
}{
	{dial: "127.0.0.1:80", reported: "127.0.0.1:80", reached: "10.9.0.2:8080"},
	{dial: "127.0.0.1:81", reported: "127.0.0.1:81", reached: "10.9.0.2:8081"},
	{dial: "127.1.2.3:80", reported: "127.1.2.3:80", reached: "10.9.0.2:8080"},
	{dial: "0.0.0.0:80", reported: "127.0.0.1:80", reached: "10.9.0.2:8080"},
	{dial: "10.9.0.1:80", reported: "10.9.0.1:80", reached: "10.9.0.2:8080"},
	{dial: "[::1]:80", reported: "[::1]:80", reached: "[fd09::2]:8080"},
	{dial: "[::]:81", reported: "[::1]:81", reached: "[fd09::2]:8081"},
	{dial: "[fd09::1]:80", reported: "[fd09::1]:80", reached: "[fd09::2]:8080"},
	{dial: "[::ffff:127.0.0.1]:80", reported: "[::ffff:127.0.0.1]:80", reached: "10.9.0.2:8080"},
	{dial: "[::ffff:10.9.0.1]:81", reported: "[::ffff:10.9.0.1]:81", reached: "10.9.0.2:8081"},
	{dial: "[::1]:90", reported: "[::1]:90", reached: "10.9.0.2:8080", connected: true},
	{dial: "[fd09::1]:91", reported: "[fd09::1]:91", reached: "10.9.0.2:8081", connected: true},
	{dial: "[::ffff:127.0.0.1]:92", reported: "[::ffff:127.0.0.1]:92", reached: "[fd09::2]:8080", connected: true},
}

func TestLocalCalls(t *testing.T) {
	newLocalWorld(t, published...).share(t, []sharing{
		{"LocalConnectionsAreTranslated", testLocalConnectionsAreTranslated},
		{"LocalDatagramsAreTranslated", testLocalDatagramsAreTranslated},
		{"OneSocketHasManyDestinations", testOneSocketHasManyDestinations},
		{"OtherCallsAreNotTranslated", testOtherCallsAreNotTranslated},
		{"LocalClientsAreDeletedCompletely", testLocalClientsAreDeletedCompletely},
	})
}

func testLocalConnectionsAreTranslated(t *testing.T, w *localWorld) {
	for _, call := range mappedCalls {
		t.Run("tcp "+call.dial, func(t *testing.T) {
			c := dialer(t, w.ns, unix.SOCK_STREAM, call.dial)
			if err := c.connect(call.dial); err != nil {
				t.Fatal(err)
			}
			reported := c.peer(t)
			if said, _ := c.answer(t); said != call.reached || reported != call.reported {
				t.Errorf("reached %s with the peer address %s, want %s and %s",
					said, reported, call.reached, call.reported)
			}
		})
		t.Run("udp "+call.dial, func(t *testing.T) {
			c := dialer(t, w.ns, unix.SOCK_DGRAM, call.dial)
			if err := c.connect(call.dial); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.Write(c.fd, []byte("?")); err != nil {
				t.Fatal(err)
			}
			said, from := c.answer(t)
			if reported := c.peer(t); said != call.reached || reported != call.reported || from != call.reported {
				t.Errorf("reached %s with the peer address %s, answered by %s; want %s and %s",
					said, reported, from, call.reached, call.reported)
			}
		})
	}
}

func testLocalDatagramsAreTranslated(t *testing.T, w *localWorld) {
	for _, call := range mappedCalls {
		if call.connected {
			continue
		}
		t.Run(call.dial, func(t *testing.T) {
			c := dialer(t, w.ns, unix.SOCK_DGRAM, call.dial)
			if err := c.sendTo(call.dial); err != nil {
				t.Fatal(err)
			}
			if said, from := c.answer(t); said != call.reached || from != call.reported {
				t.Errorf("reached %s, answered by %s, want %s and %s", said, from, call.reached, call.reported)
			}
		})
	}
}

// testOneSocketHasManyDestinations sends to published ports, to an endpoint's own
// address and to a service of the host from one socket.
func testOneSocketHasManyDestinations(t *testing.T, w *localWorld) {
	serve(t, w.ns, "127.0.0.1:5300")
	c := dialer(t, w.ns, unix.SOCK_DGRAM, "127.0.0.1:80")
	for _, step := range []struct{ dial, reached string }{
		{"127.0.0.1:80", "10.9.0.2:8080"},
		{"10.9.0.1:81", "10.9.0.2:8081"},
		{"127.0.0.1:5300", "127.0.0.1:5300"},
		{"127.0.0.1:80", "10.9.0.2:8080"},
		{"10.9.0.2:8080", "10.9.0.2:8080"},
		{"10.9.0.1:80", "10.9.0.2:8080"},
	} {
		if err := c.sendTo(step.dial); err != nil {
			t.Fatalf("%s: %v", step.dial, err)
		}
		if said, from := c.answer(t); said != step.reached || from != step.dial {
			t.Errorf("sent to %s, reached %s, answered by %s", step.dial, said, from)
		}
	}
}

func testOtherCallsAreNotTranslated(t *testing.T, w *localWorld) {
	for _, s := range []struct {
		name, dial string
		prepare    func(client) error
	}{
		{name: "an unpublished port", dial: "127.0.0.1:79"},
		{name: "IPv4 to an IPv6 endpoint", dial: "127.0.0.1:92"},
		{name: "from a loopback address", dial: "127.0.0.1:80",
			prepare: func(c client) error { return c.bind("127.0.0.1:0") }},
		{name: "from the IPv6 loopback address", dial: "[::1]:90",
			prepare: func(c client) error { return c.bind("[::1]:0") }},
		{name: "from a device", dial: "127.0.0.1:80",
			prepare: func(c client) error { return unix.BindToDevice(c.fd, "lo") }},
	} {
		t.Run(s.name, func(t *testing.T) {
			c := dialer(t, w.ns, unix.SOCK_STREAM, s.dial)
			if s.prepare != nil {
				if err := s.prepare(c); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.connect(s.dial); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("connect: %v, want %v", err, unix.ECONNREFUSED)
			}
		})
	}
	t.Run("a sandbox's own loopback", func(t *testing.T) {
		serve(t, w.box, "127.0.0.1:80")
		c := dialer(t, w.box, unix.SOCK_STREAM, "127.0.0.1:80")
		if err := c.connect("127.0.0.1:80"); err != nil {
			t.Fatal(err)
		}
		if said, _ := c.answer(t); said != "127.0.0.1:80" {
			t.Errorf("reached %s", said)
		}
	})
}

// testLocalClientsAreDeletedCompletely is the last test of its world.
func testLocalClientsAreDeletedCompletely(t *testing.T, w *localWorld) {
	w.mapping(t, true, published...)
	if err := w.Del(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	c := dialer(t, w.ns, unix.SOCK_STREAM, "127.0.0.1:80")
	if err := c.connect("127.0.0.1:80"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("connect: %v, want %v", err, unix.ECONNREFUSED)
	}
	if w.ebpf.Loaded() != nil {
		t.Error("the programs are still loaded")
	}
	if err := w.Del(plan.LocalClients{}); err != nil {
		t.Errorf("delete again: %v", err)
	}
}

// TestEveryHookIsSetAndDeleted uses a cgroup without other programs.
func TestEveryHookIsSetAndDeleted(t *testing.T) {
	root, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(root, plan.Mark+"-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	h := openTestHost(t)
	h.ebpf.Options().Cgroup = dir
	want := plan.Plan{plan.LocalClients{}}
	for range 2 {
		if err := h.Set(want[0]); err != nil {
			t.Fatal(err)
		}
		attached(t, dir, 1, datapath.LocalHooks)
	}
	have, err := h.Observe(want, want)
	if err != nil || !slices.Equal(have, want) {
		t.Errorf("observed %v, %v", have, err)
	}
	if err := h.Del(want[0]); err != nil {
		t.Fatal(err)
	}
	attached(t, dir, 0, datapath.LocalHooks)
}

// attached fails the test unless each hook of the cgroup has this number of
// programs.
func attached(t *testing.T, dir string, want int, hooks []string) {
	t.Helper()
	spec, err := ebpf.Spec(0, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, hook := range hooks {
		found, err := link.QueryPrograms(link.QueryOptions{Target: int(f.Fd()), Attach: spec.Programs[hook].AttachType})
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Programs) != want {
			t.Errorf("%s: %d programs, want %d", hook, len(found.Programs), want)
		}
	}
}

// TestDatagramsToLinkLocalAddress sends datagrams to a link-local address of the host. The
// kernel would look for the endpoint on the link of that address.
func TestDatagramsToLinkLocalAddress(t *testing.T) {
	mappings := toBox("::", 80, "fd09::2")
	for i := range mappings {
		mappings[i].Masquerade = netip.MustParseAddr("fd09::1")
	}
	w := newLocalWorld(t)
	w.run(t, "ip", "link", "add", "lan0", "type", "veth", "peer", "name", "far0")
	w.run(t, "ip", "link", "set", "far0", "up")
	w.run(t, "ip", "link", "set", "lan0", "up")
	w.run(t, "ip", "addr", "add", "fe80::9/64", "dev", "lan0", "nodad")
	w.mapping(t, false, mappings...)
	lan, err := w.rtnl.Indices()
	if err != nil {
		t.Fatal(err)
	}
	to := fmt.Sprintf("[fe80::9%%%d]:80", lan["lan0"])
	for _, connected := range []bool{false, true} {
		c := dialer(t, w.ns, unix.SOCK_DGRAM, to)
		if connected {
			if err = c.connect(to); err == nil {
				_, err = unix.Write(c.fd, []byte("?"))
			}
		} else {
			err = c.sendTo(to)
		}
		if err != nil {
			t.Fatalf("connected %v: %v", connected, err)
		}
		if said, from := c.answer(t); said != "[fd09::2]:8080" || from != "[fe80::9]:80" {
			t.Errorf("connected %v: reached %s, answered by %s", connected, said, from)
		}
	}
}
