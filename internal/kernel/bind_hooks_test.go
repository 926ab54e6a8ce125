package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// web grants ports 80 and 81 on every address, and ports 70 and 60 on one IPv4 and
// one IPv6 address.
var web = slices.Concat(own("", 8080, 80), own("10.9.0.1", 7070, 70), own("fd09::1", 6060, 60))

func TestBindHooks(t *testing.T) {
	newLocalWorld(t).share(t, []sharing{
		{"WorkloadBindsGrantedPorts", testWorkloadBindsGrantedPorts},
		{"FamiliesBoundSeparately", testFamiliesBoundSeparately},
		{"WorkloadsBindTheSamePort", testWorkloadsBindTheSamePort},
		{"ReusedPort", testReusedPort},
		{"UnpublishedPorts", testUnpublishedPorts},
		{"AnyPortIsUnchanged", testAnyPortIsUnchanged},
		{"WorkloadDials", testWorkloadDials},
		{"WorkloadSends", testWorkloadSends},
		{"ContainerPortsAreNotShared", testContainerPortsAreNotShared},
		{"MovedBindIsRefused", testMovedBindIsRefused},
		{"BindHooksAreSetAndDeleted", testBindHooksAreSetAndDeleted},
		{"EveryGrantIsUsed", testEveryGrantIsUsed},
		{"TooManyGrants", testTooManyGrants},
		{"GrantedPortsCannotBeBoundByOthers", testGrantedPortsCannotBeBoundByOthers},
	})
}

func testWorkloadBindsGrantedPorts(t *testing.T, w *localWorld) {
	g := newWorkload(t, w, model.UnpublishedLoopback, web...)
	for _, s := range []struct {
		bind string
		// reported is the address that getsockname reports to the workload.
		reported string
		// heard are the addresses at which outside clients reach it, unheard those
		// at which they do not.
		heard, unheard []string
	}{
		{"0.0.0.0:80", "0.0.0.0:80", []string{"127.0.0.1:8080", "10.9.0.1:8080"},
			[]string{"127.0.0.1:80", "127.0.0.1:8081", "[::1]:8080"}},
		{"0.0.0.0:81", "0.0.0.0:81", []string{"127.0.0.1:8081"}, []string{"127.0.0.1:8080"}},
		{"127.0.0.1:80", "127.0.0.1:80", []string{"127.0.0.1:8080"}, []string{"10.9.0.1:8080"}},
		{"10.9.0.1:81", "10.9.0.1:81", []string{"10.9.0.1:8081"}, []string{"127.0.0.1:8081"}},
		{"[::]:80", "[::]:80", []string{"[::1]:8080", "[fd09::1]:8080", "127.0.0.1:8080"}, []string{"[::1]:80"}},
		{"[fd09::1]:81", "[fd09::1]:81", []string{"[fd09::1]:8081"}, []string{"[::1]:8081"}},
		{"[::ffff:127.0.0.1]:80", "[::ffff:127.0.0.1]:80", []string{"127.0.0.1:8080"}, []string{"10.9.0.1:8080"}},
		{"0.0.0.0:70", "10.9.0.1:70", []string{"10.9.0.1:7070"}, []string{"127.0.0.1:7070"}},
		{"10.9.0.1:71", "10.9.0.1:71", []string{"10.9.0.1:7071"}, nil},
		{"[::]:70", "[::ffff:10.9.0.1]:70", []string{"10.9.0.1:7070"}, []string{"127.0.0.1:7070", "[::1]:7070"}},
		{"[::]:60", "[fd09::1]:60", []string{"[fd09::1]:6060"}, []string{"[::1]:6060"}},
	} {
		eachKind(t, s.bind, func(t *testing.T, kind int) {
			server := g.mustBind(t, kind, s.bind)
			if reported := server.name(t); reported != s.reported {
				t.Errorf("getsockname reports %s, want %s", reported, s.reported)
			}
			_, port, _ := strings.Cut(s.bind[strings.LastIndexByte(s.bind, ':'):], ":")
			for _, at := range s.heard {
				c, err := w.stranger(t, kind, at)
				if err != nil {
					t.Fatalf("%s: %v", at, err)
				}
				if reported := g.named(t, c.meets(t, kind, server)); !strings.HasSuffix(reported, ":"+port) {
					t.Errorf("the accepted connection's local address is %s, want port %s", reported, port)
				}
			}
			for _, at := range s.unheard {
				w.unheard(t, kind, at)
			}
		})
	}
}

// testFamiliesBoundSeparately binds the port for IPv4 and IPv6 one after the other,
// as many servers do, although only one family was granted. The other family is
// bound to loopback. Another workload does the same at the same time.
func testFamiliesBoundSeparately(t *testing.T, w *localWorld) {
	for _, s := range []struct{ one, two, first, second, granted, other string }{
		{"127.0.0.1", "10.9.0.1", "0.0.0.0:80", "[::]:80", "127.0.0.1:8080", "[::1]:8080"},
		{"fd09::1", "::1", "[::]:70", "0.0.0.0:70", "[fd09::1]:7070", "127.0.0.1:7070"},
	} {
		host := netip.MustParseAddrPort(s.granted).Port()
		port := netip.MustParseAddrPort(s.first).Port()
		one := newWorkload(t, w, model.UnpublishedLoopback, own(s.one, host, port)...)
		two := newWorkload(t, w, model.UnpublishedLoopback, own(s.two, host+1000, port)...)
		eachKind(t, s.first, func(t *testing.T, kind int) {
			servers := map[string]client{
				s.granted: one.bindFamily(t, kind, s.first),
				s.other:   one.bindFamily(t, kind, s.second),
			}
			two.bindFamily(t, kind, s.first)
			two.bindFamily(t, kind, s.second)
			for at, server := range servers {
				c, err := w.stranger(t, kind, at)
				if err != nil {
					t.Fatalf("%s: %v", at, err)
				}
				if reported := one.named(t, c.meets(t, kind,
					server)); netip.MustParseAddrPort(reported).Port() != port {
					t.Errorf("the accepted connection's local address is %s, want port %d", reported, port)
				}
			}
		})
	}
}

// bindFamily binds a socket for the address's family only.
func (g workload) bindFamily(t *testing.T, kind int, at string) client {
	t.Helper()
	if netip.MustParseAddrPort(at).Addr().Is6() {
		return g.mustBind(t, kind, at, v6only)
	}
	return g.mustBind(t, kind, at)
}

func testWorkloadsBindTheSamePort(t *testing.T, w *localWorld) {
	one := newWorkload(t, w, model.UnpublishedLoopback, own("", 8080, 80)...)
	two := newWorkload(t, w, model.UnpublishedLoopback, own("", 9080, 80)...)
	eachKind(t, "[::]:80", func(t *testing.T, kind int) {
		for at, server := range map[string]client{
			"127.0.0.1:8080": one.mustBind(t, kind, "[::]:80"),
			"[::1]:9080":     two.mustBind(t, kind, "[::]:80"),
		} {
			c, err := w.stranger(t, kind, at)
			if err != nil {
				t.Fatal(err)
			}
			c.meets(t, kind, server)
		}
	})
}

// testReusedPort checks SO_REUSEPORT: a workload's sockets share its port only if
// all of them set it.
func testReusedPort(t *testing.T, w *localWorld) {
	g := newWorkload(t, w, model.UnpublishedLoopback, own("", 8080, 80)...)
	for _, at := range []string{"0.0.0.0:80", "[::]:80"} {
		eachKind(t, at, func(t *testing.T, kind int) {
			g.mustBind(t, kind, at, reusePort)
			last := g.mustBind(t, kind, at, reusePort)
			if reported := last.name(t); reported != at {
				t.Errorf("getsockname of the second socket reports %s", reported)
			}
			if _, err := g.bind(t, kind, at); !errors.Is(err, unix.EADDRINUSE) {
				t.Errorf("bind a third socket without SO_REUSEPORT: %v, want %v", err, unix.EADDRINUSE)
			}
		})
	}
}

func testUnpublishedPorts(t *testing.T, w *localWorld) {
	for _, s := range []struct {
		policy         model.Unpublished
		bind, reported string // reported is empty if bind is refused
	}{
		{model.UnpublishedLoopback, "0.0.0.0:99", "127.0.0.1:99"},
		{model.UnpublishedLoopback, "10.9.0.1:99", "127.0.0.1:99"},
		{model.UnpublishedLoopback, "127.0.0.5:99", "127.0.0.5:99"},
		{model.UnpublishedLoopback, "[::]:99", "[::1]:99"},
		{model.UnpublishedLoopback, "[fd09::1]:99", "[::1]:99"},
		{model.UnpublishedLoopback, "[::ffff:10.9.0.1]:99", "[::ffff:127.0.0.1]:99"},
		{model.UnpublishedLoopback, "127.0.0.1:70", "127.0.0.1:70"}, // granted on another address
		{model.UnpublishedDeny, "0.0.0.0:99", ""},
		{model.UnpublishedDeny, "127.0.0.1:99", ""},
		{model.UnpublishedDeny, "[::]:99", ""},
		{model.UnpublishedAllow, "0.0.0.0:99", "0.0.0.0:99"},
		{model.UnpublishedAllow, "[fd09::1]:99", "[fd09::1]:99"},
	} {
		eachKind(t, string(s.policy)+" "+s.bind, func(t *testing.T, kind int) {
			g := newWorkload(t, w, s.policy, web...)
			c, err := g.bind(t, kind, s.bind)
			if s.reported == "" {
				if !errors.Is(err, unix.EACCES) {
					t.Errorf("bind: %v, want %v", err, unix.EACCES)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if reported := c.name(t); reported != s.reported {
				t.Errorf("bound to %s, want %s", reported, s.reported)
			}
		})
	}
}

// testAnyPortIsUnchanged binds port 0, which clients do: it is allowed under every
// policy.
func testAnyPortIsUnchanged(t *testing.T, w *localWorld) {
	g := newWorkload(t, w, model.UnpublishedDeny, web...)
	eachKind(t, "10.9.0.1:0", func(t *testing.T, kind int) {
		if reported := g.mustBind(t, kind, "10.9.0.1:0").name(t); !strings.HasPrefix(reported, "10.9.0.1:") {
			t.Errorf("bound to %s", reported)
		}
	})
}

// testWorkloadDials dials container ports of another workload, the workload's own
// port when another workload has the same, and host ports as any client does.
func testWorkloadDials(t *testing.T, w *localWorld) {
	one := newWorkload(t, w, model.UnpublishedLoopback, own("", 8080, 80)...)
	two := newWorkload(t, w, model.UnpublishedLoopback, append(own("", 9080, 80), own("10.9.0.1", 9090, 90)...)...)
	for _, s := range []struct {
		from       workload
		dial, bind string
		owner      workload
	}{
		{one, "127.0.0.1:90", "0.0.0.0:90", two},
		{one, "10.9.0.1:90", "0.0.0.0:90", two},
		{one, "0.0.0.0:90", "0.0.0.0:90", two},
		{one, "[::ffff:127.0.0.1]:91", "0.0.0.0:91", two},
		{one, "127.0.0.1:80", "0.0.0.0:80", one},
		{one, "[::1]:80", "[::]:80", one},
		{two, "[fd09::1]:81", "[::]:81", two},
		{two, "127.0.0.1:8080", "0.0.0.0:80", one},
		{one, "[::1]:9080", "[::]:80", two},
	} {
		reported := strings.Replace(s.dial, "0.0.0.0", "127.0.0.1", 1)
		eachKind(t, s.dial, func(t *testing.T, kind int) {
			server := s.owner.mustBind(t, kind, s.bind)
			c, err := s.from.connect(t, kind, s.dial)
			if err != nil {
				t.Fatal(err)
			}
			if peer := c.peer(t); peer != reported {
				t.Errorf("getpeername reports %s, want %s", peer, reported)
			}
			c.meets(t, kind, server)
		})
	}
}

// testWorkloadSends sends datagrams from an unconnected socket.
func testWorkloadSends(t *testing.T, w *localWorld) {
	one := newWorkload(t, w, model.UnpublishedLoopback, own("", 8080, 80)...)
	two := newWorkload(t, w, model.UnpublishedLoopback, own("", 9090, 90)...)
	for bind, dials := range map[string][]string{
		"0.0.0.0:90": {"127.0.0.1:90", "10.9.0.1:90"},
		"[::]:91":    {"[::1]:91", "[fd09::1]:91", "[::ffff:127.0.0.1]:91"},
	} {
		server := two.mustBind(t, unix.SOCK_DGRAM, bind)
		for _, dial := range dials {
			t.Run(dial, func(t *testing.T) {
				var c client
				one.do(func() {
					c = dialer(t, w.ns, unix.SOCK_DGRAM, dial)
					if err := c.sendTo(dial); err != nil {
						t.Fatal(err)
					}
				})
				_, from, err := unix.Recvfrom(server.fd, make([]byte, 8), 0)
				if err != nil {
					t.Fatalf("no datagram arrived: %v", err)
				}
				if err := unix.Sendto(server.fd, []byte("!"), 0, from); err != nil {
					t.Fatal(err)
				}
				if _, from := c.answer(t); from != dial {
					t.Errorf("the answer comes from %s", from)
				}
			})
		}
	}
}

// testContainerPortsAreNotShared dials a container port that two other workloads
// have, from a third workload and from outside any workload. Both dials are
// refused.
func testContainerPortsAreNotShared(t *testing.T, w *localWorld) {
	one := newWorkload(t, w, model.UnpublishedLoopback, own("", 8080, 80)...)
	two := newWorkload(t, w, model.UnpublishedLoopback, own("", 9080, 80)...)
	three := newWorkload(t, w, model.UnpublishedLoopback)
	one.mustBind(t, unix.SOCK_STREAM, "0.0.0.0:80")
	two.mustBind(t, unix.SOCK_STREAM, "0.0.0.0:80")
	if _, err := three.connect(t, unix.SOCK_STREAM, "127.0.0.1:80"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("dial a port that two workloads have: %v, want ECONNREFUSED", err)
	}
	w.unheard(t, unix.SOCK_STREAM, "127.0.0.1:80")
}

// testMovedBindIsRefused attaches another program that runs after Fairlead's and
// changes the port to one that was not granted.
func testMovedBindIsRefused(t *testing.T, w *localWorld) {
	parent := kerneltest.Cgroup(t, kerneltest.CgroupRoot(t))
	g := workload{t, w, kerneltest.Cgroup(t, parent)}
	w.grant(t, g.path, own("", 8080, 80)...)
	defer w.dismiss(t, g.path, own("", 8080, 80)...)
	if err := w.Set(plan.BindHooks{Cgroup: g.path, Unpublished: model.UnpublishedLoopback}); err != nil {
		t.Fatal(err)
	}
	for at, hook := range map[string]ebpf.AttachType{"10.9.0.1:80": ebpf.AttachCGroupInet4Bind,
		"[fd09::1]:80": ebpf.AttachCGroupInet6Bind} {
		g.mustBind(t, unix.SOCK_DGRAM, at)
		attachMover(t, parent, hook, 81)
		if _, err := g.bind(t, unix.SOCK_STREAM, at); !errors.Is(err, unix.EPERM) {
			t.Errorf("bind %s: %v, want %v", at, err, unix.EPERM)
		}
	}
}

// TestFullHookIsExplained fills a hook: a cgroup accepts 64 programs per hook.
func TestFullHookIsExplained(t *testing.T) {
	h := openTestHost(t)
	h.ebpf.Options().Cgroup = kerneltest.Cgroup(t, kerneltest.CgroupRoot(t))
	for range 64 {
		attachMover(t, h.ebpf.Options().Cgroup, ebpf.AttachCGroupInet4Bind, 81)
	}
	err := h.Set(plan.LocalClients{})
	if err == nil || !strings.Contains(err.Error(), h.ebpf.Options().Cgroup+" has 64 programs at this hook") {
		t.Errorf("attach one more program: %v", err)
	}
}

// attachMover attaches a program that replaces the port of every bind in the
// cgroup.
func attachMover(t *testing.T, path string, hook ebpf.AttachType, port uint16) {
	t.Helper()
	const userPort = 24 // in struct bpf_sock_addr, in network byte order
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupSockAddr, AttachType: hook, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R2, int32(port>>8|port<<8)),
			asm.StoreMem(asm.R1, userPort, asm.R2, asm.Word),
			asm.Mov.Imm(asm.R0, 1),
			asm.Return(),
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	l, err := link.AttachCgroup(link.CgroupOptions{Path: path, Attach: hook, Program: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// dismiss removes a workload's grants and hooks.
func (w *localWorld) dismiss(t *testing.T, path string, grants ...plan.Grant) {
	t.Helper()
	var ops []plan.Op
	for _, o := range grants {
		o.Cgroup = path
		ops = append(ops, plan.Op{Object: o, Del: true})
	}
	if err := errors.Join(w.ebpf.ApplyEBPF(ops), w.Del(plan.BindHooks{Cgroup: path})); err != nil {
		t.Fatal(err)
	}
}

func testBindHooksAreSetAndDeleted(t *testing.T, w *localWorld) {
	g := newWorkload(t, w, model.UnpublishedDeny, web...)
	want := plan.BindHooks{Cgroup: g.path, Unpublished: model.UnpublishedDeny}
	if err := w.Set(want); err != nil {
		t.Fatalf("set again: %v", err)
	}
	attached(t, g.path, 1, datapath.BindHookPrograms)
	have, err := w.Observe(plan.Plan{want}, plan.Plan{want})
	if err != nil || !slices.Contains(have, plan.Object(want)) {
		t.Errorf("observed %v, %v", have, err)
	}
	for range 2 {
		w.dismiss(t, g.path, web...)
		attached(t, g.path, 0, datapath.BindHookPrograms)
	}
	if reported := g.mustBind(t, unix.SOCK_STREAM, "0.0.0.0:80").name(t); reported != "0.0.0.0:80" {
		t.Errorf("without hooks, getsockname reports %s", reported)
	}
	w.unheard(t, unix.SOCK_STREAM, "127.0.0.1:8080")
}

// TestBindHooksAreAdopted checks that the next process finds the pinned hooks,
// keeps them working and deletes them.
func TestBindHooksAreAdopted(t *testing.T) {
	w := newLocalWorld(t)
	w.ebpf.Options().Pins = filepath.Join(bpffs(t), plan.Mark)
	if err := w.Del(plan.LocalClients{}); err != nil { // the data path that pins nothing
		t.Fatal(err)
	}
	g := newWorkload(t, w, model.UnpublishedDeny, web...)
	h, err := Open(w.ns.Path(), Options{Pins: w.ebpf.Options().Pins})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	next := &localWorld{Host: h}
	g.w = next
	want := plan.BindHooks{Cgroup: g.path, Unpublished: model.UnpublishedDeny}
	have, err := next.Observe(plan.Plan{want}, plan.Plan{want})
	if err != nil || !slices.Contains(have, plan.Object(want)) {
		t.Errorf("observed %v, %v", have, err)
	}
	g.mustBind(t, unix.SOCK_STREAM, "0.0.0.0:80")
	next.dismiss(t, g.path, web...)
	attached(t, g.path, 0, datapath.BindHookPrograms)
	if left, err := os.ReadDir(h.ebpf.Options().Pins); err != nil || len(left) != 0 {
		t.Errorf("pins are left: %v, %v", left, err)
	}
}

// TestDeadWorkloadIsForgotten removes a cgroup without notifying Fairlead. Its
// ports can be granted again, and deleting its hooks succeeds.
func TestDeadWorkloadIsForgotten(t *testing.T) {
	w := newLocalWorld(t)
	g := newWorkload(t, w, model.UnpublishedLoopback, web...)
	if err := os.Remove(g.path); err != nil {
		t.Fatal(err)
	}
	newWorkload(t, w, model.UnpublishedLoopback)
	all, err := w.ebpf.Loaded().Workloads().All()
	if err != nil || len(all) != 1 {
		t.Errorf("%d workloads are known, want one (%v)", len(all), err)
	}
	if err := w.Del(plan.BindHooks{Cgroup: g.path}); err != nil {
		t.Error(err)
	}
}

// TestGrantsOfOtherProcesses checks that a process does not grant ports that
// another process has granted, and that its workloads reach the other process's
// workloads.
func TestGrantsOfOtherProcesses(t *testing.T) {
	w := newLocalWorld(t)
	one := newWorkload(t, w, model.UnpublishedLoopback, own("", 8080, 80)...)
	h, err := Open(w.ns.Path(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	other := &localWorld{Host: h, box: w.box}
	path := kerneltest.Cgroup(t, kerneltest.CgroupRoot(t))
	for host, taken := range map[string]bool{"": true, "10.9.0.1": true} {
		grants := own(host, 8081, 90)
		grants[0].Cgroup = path
		err := h.ebpf.ApplyEBPF([]plan.Op{{Object: grants[0]}})
		if got := err != nil && strings.Contains(err.Error(), "8081 is granted to the workload in "+
			one.path); got != taken {
			t.Errorf("granting 8081 on %q: %v", host, err)
		}
	}
	two := newWorkload(t, other, model.UnpublishedLoopback, own("", 9090, 90)...)
	server := one.mustBind(t, unix.SOCK_STREAM, "0.0.0.0:80")
	c, err := two.connect(t, unix.SOCK_STREAM, "127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	c.meets(t, unix.SOCK_STREAM, server)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}

// testEveryGrantIsUsed grants a workload as many ports as it can have. It binds each of them, sees the port that it
// has chosen, and clients reach it at the granted port.
func testEveryGrantIsUsed(t *testing.T, w *localWorld) {
	var many []plan.Grant
	for i := range uint16(32) {
		many = append(many, own("", 10000+2*i, 20000+2*i)...)
	}
	g := newWorkload(t, w, model.UnpublishedDeny, many...)
	for i := range 32 {
		for _, host := range []string{"127.0.0.1", "[::1]"} {
			for _, kind := range socketTypes {
				at := fmt.Sprintf("%s:%d", host, 20001+2*i)
				server := g.mustBind(t, kind, at)
				if reported := server.name(t); reported != at {
					t.Errorf("getsockname reports %s, want %s", reported, at)
				}
				c, err := w.stranger(t, kind, fmt.Sprintf("%s:%d", host, 10001+2*i))
				if err != nil {
					t.Fatalf("%s: %v", at, err)
				}
				c.meets(t, kind, server)
			}
		}
	}
	if _, err := g.bind(t, unix.SOCK_STREAM, "127.0.0.1:20064"); !errors.Is(err, unix.EACCES) {
		t.Errorf("bind a port that was not granted: %v, want %v", err, unix.EACCES)
	}
}

// testTooManyGrants expects an error that recommends ranges.
func testTooManyGrants(t *testing.T, w *localWorld) {
	path := kerneltest.Cgroup(t, kerneltest.CgroupRoot(t))
	var many []plan.Grant
	for i := range uint16(33) {
		many = append(many, own("", 10000+2*i, 20000+2*i)...)
	}
	w.grant(t, path, many...)
	defer w.dismiss(t, path, many...)
	err := w.Set(plan.BindHooks{Cgroup: path, Unpublished: model.UnpublishedLoopback})
	if err == nil || !strings.Contains(err.Error(), "publish ranges") {
		t.Errorf("132 grants: %v", err)
	}
}

func TestWorkloadCgroup(t *testing.T) {
	h := openTestHost(t)
	for path, want := range map[string]string{
		kerneltest.CgroupRoot(t): "root of the hierarchy",
		t.TempDir():              "is not a cgroup v2 directory",
	} {
		err := h.Set(plan.BindHooks{Cgroup: path, Unpublished: model.UnpublishedLoopback})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
