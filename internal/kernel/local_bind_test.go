package kernel

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// guarded returns port mappings for port 80 on every address, port 70 on one IPv4
// address, and port 50 on one IPv6 address. Port 60 is mapped as well, but marked
// as bound by the proxy, so that the hooks do not guard it.
func guarded() []plan.EBPFMapping {
	reserved := toBox("0.0.0.0", 60, "10.9.0.2")
	for i := range reserved {
		reserved[i].Reserved = true
	}
	return slices.Concat(reserved,
		toBox("0.0.0.0", 80, "10.9.0.2"), toBox("::", 80, "fd09::2"),
		toBox("10.9.0.1", 70, "10.9.0.2"), toBox("fd09::1", 50, "fd09::2"))
}

func TestGuardedPorts(t *testing.T) {
	newLocalWorld(t, guarded()...).share(t, []sharing{
		{"MappedPortsCannotBeBound", testMappedPortsCannotBeBound},
		{"ProxyAndOtherNamespacesMayBind", testProxyAndOtherNamespacesMayBind},
		{"ForgedKeysDoNotPassTheBindHook", testForgedKeysDoNotPassTheBindHook},
		{"KernelChoosesMappedPorts", testKernelChoosesMappedPorts},
		{"EveryAddressOfAPortIsGuarded", testEveryAddressOfAPortIsGuarded},
	})
}

func testMappedPortsCannotBeBound(t *testing.T, w *localWorld) {
	for _, s := range []struct {
		at      string
		refused bool
	}{
		{"0.0.0.0:80", true}, {"127.0.0.1:81", true}, {"10.9.0.1:80", true},
		{"[::]:80", true}, {"[::1]:80", true}, {"[fd09::1]:81", true}, {"[::ffff:127.0.0.1]:80", true},
		{"0.0.0.0:79", false}, {"0.0.0.0:82", false}, {"0.0.0.0:0", false}, {"[::]:0", false},
		{"10.9.0.1:70", true}, {"[::ffff:10.9.0.1]:71", true}, {"0.0.0.0:70", true}, {"[::]:70", true},
		{"[::ffff:0.0.0.0]:70", true}, {"127.0.0.1:70", false}, {"[::1]:70", false},
		{"0.0.0.0:60", false}, {"[::]:60", false},
		{"[fd09::1]:50", true}, {"[::]:50", true}, {"[::1]:50", false}, {"0.0.0.0:50", false},
	} {
		for name, kind := range map[string]int{"tcp ": unix.SOCK_STREAM, "udp ": unix.SOCK_DGRAM} {
			t.Run(name+s.at, func(t *testing.T) {
				err := dialer(t, w.ns, kind, s.at).bind(s.at)
				if want := map[bool]error{true: unix.EADDRINUSE}[s.refused]; !errors.Is(err, want) {
					t.Errorf("bind: %v, want %v", err, want)
				}
			})
		}
	}
}

// testEveryAddressOfAPortIsGuarded maps one port on as many addresses as the table allows. None of them can be bound,
// and another address can.
func testEveryAddressOfAPortIsGuarded(t *testing.T, w *localWorld) {
	var all []plan.EBPFMapping
	for n := range 64 {
		all = append(all, toBox(fmt.Sprintf("127.1.0.%d", n), 90, "10.9.0.2")...)
	}
	w.mapping(t, false, all...)
	defer w.mapping(t, true, all...)
	for n := range 65 {
		for name, kind := range map[string]int{"TCP": unix.SOCK_STREAM, "UDP": unix.SOCK_DGRAM} {
			at := fmt.Sprintf("127.1.0.%d:90", n)
			err := dialer(t, w.ns, kind, at).bind(at)
			if want := map[bool]error{true: unix.EADDRINUSE}[n < 64]; !errors.Is(err, want) {
				t.Errorf("%s, bind %s: %v, want %v", name, at, err, want)
			}
		}
	}
}

// ipLocalPortRange is IP_LOCAL_PORT_RANGE of linux/in.h (Linux 6.3).
const ipLocalPortRange = 51

// testKernelChoosesMappedPorts: the kernel may choose a mapped port of the ephemeral range for a socket, without asking
// the hooks, and a program can make it do so. It does not choose reserved ports, and clients of the mapped port reach
// the workload in any case.
func testKernelChoosesMappedPorts(t *testing.T, w *localWorld) {
	w.mapping(t, false, toBox("0.0.0.0", 40000, "10.9.0.2")...)
	w.run(t, "sysctl", "-qw", "net.ipv4.ip_local_port_range=32768 60999")
	const only = 40000
	chosen := map[string]func(client) error{
		"bind to port 0": func(c client) error { return c.bind("0.0.0.0:0") },
		"connect":        func(c client) error { return c.connect("10.9.0.2:8081") },
		"send":           func(c client) error { return c.sendTo("10.9.0.2:8081") },
	}
	for _, reserved := range []bool{false, true} {
		if reserved {
			w.run(t, "sysctl", "-qw", "net.ipv4.ip_local_reserved_ports=40000-40001")
		}
		for name, choose := range chosen {
			t.Run(fmt.Sprintf("%s, reserved: %t", name, reserved), func(t *testing.T) {
				c := dialer(t, w.ns, unix.SOCK_DGRAM, "10.9.0.1:0")
				if err := unix.SetsockoptInt(c.fd, unix.IPPROTO_IP, ipLocalPortRange, only<<16|only); err != nil {
					t.Fatal(err)
				}
				err := choose(c)
				if reserved != (err != nil) || !reserved && !strings.HasSuffix(c.name(t), ":40000") {
					t.Errorf("the socket has %s, %v", c.name(t), err)
				}
				of := dialer(t, w.ns, unix.SOCK_DGRAM, "127.0.0.1:40000")
				if err := of.sendTo("127.0.0.1:40000"); err != nil {
					t.Fatal(err)
				}
				if said, _ := of.answer(t); said != "10.9.0.2:8080" {
					t.Errorf("a client of the port gets the answer of %s", said)
				}
			})
		}
	}
}

func testProxyAndOtherNamespacesMayBind(t *testing.T, w *localWorld) {
	proxy := dialer(t, w.ns, unix.SOCK_STREAM, "0.0.0.0:80")
	if err := proxy.setKey(bindKey(t, w.Host)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]client{"proxy": proxy,
		"sandbox": dialer(t, w.box, unix.SOCK_STREAM, "0.0.0.0:80")} {
		if err := c.bind("0.0.0.0:80"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// bindKey returns the host's bind key.
func bindKey(t *testing.T, h *Host) uint64 {
	t.Helper()
	key, err := h.ebpf.BindKey()
	if err != nil || key == 0 {
		t.Fatalf("BindKey returns %#x, %v", key, err)
	}
	return key
}

// setKey sets a socket's key, as the proxy does.
func (c client) setKey(key uint64) error {
	return errors.Join(
		unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_MARK, int(int32(key))),
		unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_PRIORITY, int(int32(key>>32))))
}

// withNetRaw runs f on a thread whose only capability is CAP_NET_RAW.
func withNetRaw(f func() error) error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		caps := [2]unix.CapUserData{{Effective: 1 << unix.CAP_NET_RAW, Permitted: 1 << unix.CAP_NET_RAW}}
		err := unix.Capset(&header, &caps[0])
		if err == nil {
			err = f()
		}
		failed <- err
	}()
	return <-failed
}

func testForgedKeysDoNotPassTheBindHook(t *testing.T, w *localWorld) {
	key := bindKey(t, w.Host)
	for name, forged := range map[string]uint64{
		"no mark": 0, "the mark of earlier versions": 0xfa1e, "both halves 0xfa1e": 0xfa1e<<32 | 0xfa1e,
		"only the right mark": key & math.MaxUint32, "only the right priority": key &^ math.MaxUint32,
		"one bit wrong": key ^ 1<<40, "all ones": math.MaxUint64,
	} {
		for _, at := range []string{"0.0.0.0:80", "[fd09::1]:50", "[::]:80"} {
			t.Run(name+" "+at, func(t *testing.T) {
				c := dialer(t, w.ns, unix.SOCK_STREAM, at)
				err := withNetRaw(func() error {
					if err := c.setKey(forged); err != nil {
						return err
					}
					return c.bind(at)
				})
				if !errors.Is(err, unix.EADDRINUSE) {
					t.Errorf("bind: %v, want %v", err, unix.EADDRINUSE)
				}
			})
		}
	}
}

func TestEachProcessHasANewBindKey(t *testing.T) {
	w := newLocalWorld(t)
	_, open := w.pinned(t)
	before := open()
	if err := before.ebpf.ApplyEBPF([]plan.Op{{Object: toBox("0.0.0.0", 90, "10.9.0.2")[0]}}); err != nil {
		t.Fatal(err)
	}
	if err := before.Set(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	old := bindKey(t, before)
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	after := open()
	fresh := bindKey(t, after)
	if fresh == old {
		t.Errorf("both processes have the key %#x", old)
	}
	for _, s := range []struct {
		key  uint64
		want error
	}{{old, unix.EADDRINUSE}, {fresh, nil}} {
		c := dialer(t, w.ns, unix.SOCK_STREAM, "0.0.0.0:90")
		if err := c.setKey(s.key); err != nil {
			t.Fatal(err)
		}
		if err := c.bind("0.0.0.0:90"); !errors.Is(err, s.want) {
			t.Errorf("bind with the key %#x (before %#x, now %#x): %v, want %v", s.key, old, fresh, err, s.want)
		}
	}
}

// testGrantedPortsCannotBeBoundByOthers is the last test of its world: its grant stays.
func testGrantedPortsCannotBeBoundByOthers(t *testing.T, w *localWorld) {
	p, err := w.ebpf.Datapath()
	if err != nil {
		t.Fatal(err)
	}
	// No cgroup has the highest id.
	grant := &ebpf.Mapping{Flags: ebpf.MappingGrant | ebpf.MappingAny, First: 80, Last: 81, Cgroup: math.MaxUint64}
	if err := p.Table().Apply([]ebpf.Change{{New: grant}}); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]error{"127.0.0.1:80": unix.EADDRINUSE, "0.0.0.0:81": unix.EADDRINUSE,
		"127.0.0.1:82": nil} {
		if err := dialer(t, w.ns, unix.SOCK_STREAM, at).bind(at); !errors.Is(err, want) {
			t.Errorf("bind %s: %v, want %v", at, err, want)
		}
	}
}
