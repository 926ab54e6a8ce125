package kernel

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// web has 80 and 81 on every address, and 70 and 60 on one of IPv4 and IPv6.
var web = slices.Concat(own("", 8080, 80), own("10.9.0.1", 7070, 70), own("fd09::1", 6060, 60))

func TestWorkloadBindsWhatItWasGranted(t *testing.T) {
	w := newLocalWorld(t)
	g := newWorkload(t, w, model.UnpublishedLoopback, web...)
	for _, s := range []struct {
		bind string
		// told is what the workload is told that it has bound.
		notified string
		// heard and unheard are where it is reached from outside, and where not.
		heard, unheard []string
	}{
		{"0.0.0.0:80", "0.0.0.0:80", []string{"127.0.0.1:8080", "10.9.0.1:8080"}, []string{"127.0.0.1:80", "127.0.0.1:8081", "[::1]:8080"}},
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
			if notified := server.name(t); notified != s.notified {
				t.Errorf("it is told that it has bound %s, want %s", notified, s.notified)
			}
			_, port, _ := strings.Cut(s.bind[strings.LastIndexByte(s.bind, ':'):], ":")
			for _, at := range s.heard {
				c, err := w.stranger(t, kind, at)
				if err != nil {
					t.Fatalf("%s: %v", at, err)
				}
				if notified := g.named(t, c.meets(t, kind, server)); !strings.HasSuffix(notified, ":"+port) {
					t.Errorf("the end of its connection is told to be at %s, want port %s", notified, port)
				}
			}
			for _, at := range s.unheard {
				w.unheard(t, kind, at)
			}
		})
	}
}

// TestFamiliesBoundOneByOne, as many servers do, where one was granted: the
// other goes to loopback, beside that of another workload.
func TestFamiliesBoundOneByOne(t *testing.T) {
	w := newLocalWorld(t)
	for _, s := range []struct{ one, two, first, second, heard, readOnly string }{
		{"127.0.0.1", "10.9.0.1", "0.0.0.0:80", "[::]:80", "127.0.0.1:8080", "[::1]:8080"},
		{"fd09::1", "::1", "[::]:70", "0.0.0.0:70", "[fd09::1]:7070", "127.0.0.1:7070"},
	} {
		host := netip.MustParseAddrPort(s.heard).Port()
		port := netip.MustParseAddrPort(s.first).Port()
		one := newWorkload(t, w, model.UnpublishedLoopback, own(s.one, host, port)...)
		two := newWorkload(t, w, model.UnpublishedLoopback, own(s.two, host+1000, port)...)
		eachKind(t, s.first, func(t *testing.T, kind int) {
			servers := map[string]client{
				s.heard:    one.bindFamily(t, kind, s.first),
				s.readOnly: one.bindFamily(t, kind, s.second),
			}
			two.bindFamily(t, kind, s.first)
			two.bindFamily(t, kind, s.second)
			for at, server := range servers {
				c, err := w.stranger(t, kind, at)
				if err != nil {
					t.Fatalf("%s: %v", at, err)
				}
				if notified := one.named(t, c.meets(t, kind, server)); netip.MustParseAddrPort(notified).Port() != port {
					t.Errorf("the end of its connection is told to be at %s", notified)
				}
			}
		})
	}
}

// bindFamily binds for one family only.
func (g workload) bindFamily(t *testing.T, kind int, at string) client {
	t.Helper()
	if netip.MustParseAddrPort(at).Addr().Is6() {
		return g.mustBind(t, kind, at, v6only)
	}
	return g.mustBind(t, kind, at)
}

func TestWorkloadsBindOnePortSideBySide(t *testing.T) {
	w := newLocalWorld(t)
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

// TestReusedPort: a workload's sockets share its port if they all say so, as
// any sockets do.
func TestReusedPort(t *testing.T) {
	w := newLocalWorld(t)
	g := newWorkload(t, w, model.UnpublishedLoopback, own("", 8080, 80)...)
	for _, at := range []string{"0.0.0.0:80", "[::]:80"} {
		eachKind(t, at, func(t *testing.T, kind int) {
			g.mustBind(t, kind, at, reusePort)
			last := g.mustBind(t, kind, at, reusePort)
			if notified := last.name(t); notified != at {
				t.Errorf("the second is told that it has bound %s", notified)
			}
			if _, err := g.bind(t, kind, at); !errors.Is(err, unix.EADDRINUSE) {
				t.Errorf("a third that does not share it: %v, want %v", err, unix.EADDRINUSE)
			}
		})
	}
}

func TestUnlistedPorts(t *testing.T) {
	w := newLocalWorld(t)
	for _, s := range []struct {
		policy         model.Unpublished
		bind, notified string // told is empty where it is refused
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
			defer w.dismiss(t, g.path, web...)
			c, err := g.bind(t, kind, s.bind)
			if s.notified == "" {
				if !errors.Is(err, unix.EACCES) {
					t.Errorf("bind: %v, want %v", err, unix.EACCES)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if notified := c.name(t); notified != s.notified {
				t.Errorf("bound to %s, want %s", notified, s.notified)
			}
		})
	}
}

// TestAnyPortIsLeftAlone: clients bind port 0, whatever the policy.
func TestAnyPortIsLeftAlone(t *testing.T) {
	w := newLocalWorld(t)
	g := newWorkload(t, w, model.UnpublishedDeny, web...)
	eachKind(t, "10.9.0.1:0", func(t *testing.T, kind int) {
		if notified := g.mustBind(t, kind, "10.9.0.1:0").name(t); !strings.HasPrefix(notified, "10.9.0.1:") {
			t.Errorf("bound to %s", notified)
		}
	})
}

// TestWorkloadDials reaches own ports: another's, the workload's own before
// another's, and host ports as everyone does.
func TestWorkloadDials(t *testing.T) {
	w := newLocalWorld(t)
	one := newWorkload(t, w, model.UnpublishedLoopback, own("", 8080, 80)...)
	two := newWorkload(t, w, model.UnpublishedLoopback, append(own("", 9080, 80), own("10.9.0.1", 9090, 90)...)...)
	for _, s := range []struct {
		who        workload
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
		notified := strings.Replace(s.dial, "0.0.0.0", "127.0.0.1", 1)
		eachKind(t, s.dial, func(t *testing.T, kind int) {
			server := s.owner.mustBind(t, kind, s.bind)
			c, err := s.who.connect(t, kind, s.dial)
			if err != nil {
				t.Fatal(err)
			}
			if peer := c.peer(t); peer != notified {
				t.Errorf("it is told that it has reached %s, want %s", peer, notified)
			}
			c.meets(t, kind, server)
		})
	}
}

// TestWorkloadSends asks by datagrams from an unconnected socket.
func TestWorkloadSends(t *testing.T) {
	w := newLocalWorld(t)
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
					t.Fatalf("nothing came: %v", err)
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

// TestOwnPortsAreNobodyElses: a port that two others have, and every own port
// for who is no workload.
func TestOwnPortsAreNobodyElses(t *testing.T) {
	w := newLocalWorld(t)
	one := newWorkload(t, w, model.UnpublishedLoopback, own("", 8080, 80)...)
	two := newWorkload(t, w, model.UnpublishedLoopback, own("", 9080, 80)...)
	three := newWorkload(t, w, model.UnpublishedLoopback)
	one.mustBind(t, unix.SOCK_STREAM, "0.0.0.0:80")
	two.mustBind(t, unix.SOCK_STREAM, "0.0.0.0:80")
	if _, err := three.connect(t, unix.SOCK_STREAM, "127.0.0.1:80"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("one of two was chosen: %v", err)
	}
	w.unheard(t, unix.SOCK_STREAM, "127.0.0.1:80")
}

// TestMovedBindIsRefused lets another's program, which runs after ours, move
// the socket to a port that nobody granted.
func TestMovedBindIsRefused(t *testing.T) {
	w := newLocalWorld(t)
	parent := newTestCgroup(t, cgroupRoot(t))
	g := workload{t, w, newTestCgroup(t, parent)}
	w.grant(t, g.path, own("", 8080, 80)...)
	if err := w.Set(plan.BindHooks{Cgroup: g.path, Unlisted: model.UnpublishedLoopback}); err != nil {
		t.Fatal(err)
	}
	for at, hook := range map[string]ebpf.AttachType{"10.9.0.1:80": ebpf.AttachCGroupInet4Bind, "[fd09::1]:80": ebpf.AttachCGroupInet6Bind} {
		g.mustBind(t, unix.SOCK_DGRAM, at)
		attachMover(t, parent, hook, 81)
		if _, err := g.bind(t, unix.SOCK_STREAM, at); !errors.Is(err, unix.EPERM) {
			t.Errorf("bind %s: %v, want %v", at, err, unix.EPERM)
		}
	}
}

// TestFullHookIsExplained: a cgroup takes so many programs and no more.
func TestFullHookIsExplained(t *testing.T) {
	h := openTestHost(t)
	h.opt.Cgroup = newTestCgroup(t, cgroupRoot(t))
	for range 64 {
		attachMover(t, h.opt.Cgroup, ebpf.AttachCGroupInet4Bind, 81)
	}
	err := h.Set(plan.LocalClients{})
	if err == nil || !strings.Contains(err.Error(), h.opt.Cgroup+" has 64 programs at this hook") {
		t.Errorf("one more program: %v", err)
	}
}

// attachMover makes every bind in the cgroup at that hook one to the port.
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

// dismiss takes a workload's grants and its hooks away.
func (w *localWorld) dismiss(t *testing.T, path string, grants ...plan.Grant) {
	t.Helper()
	var ops []plan.Op
	for _, o := range grants {
		o.Cgroup = path
		ops = append(ops, plan.Op{Object: o, Del: true})
	}
	if err := errors.Join(w.ApplyEBPF(ops), w.Del(plan.BindHooks{Cgroup: path})); err != nil {
		t.Fatal(err)
	}
}

func TestBoundsComeAndGo(t *testing.T) {
	w := newLocalWorld(t)
	g := newWorkload(t, w, model.UnpublishedDeny, web...)
	want := plan.BindHooks{Cgroup: g.path, Unlisted: model.UnpublishedDeny}
	if err := w.Set(want); err != nil {
		t.Fatalf("once more: %v", err)
	}
	attached(t, g.path, 1, boundHooks)
	have, err := w.Observe(plan.Plan{want}, plan.Plan{want})
	if err != nil || !slices.Contains(have, plan.Object(want)) {
		t.Errorf("observed %v, %v", have, err)
	}
	for range 2 {
		w.dismiss(t, g.path, web...)
		attached(t, g.path, 0, boundHooks)
	}
	if notified := g.mustBind(t, unix.SOCK_STREAM, "0.0.0.0:80").name(t); notified != "0.0.0.0:80" {
		t.Errorf("what is bound no more binds %s", notified)
	}
	w.unheard(t, unix.SOCK_STREAM, "127.0.0.1:8080")
}

// TestBoundsAreAdopted: what a process has pinned the next one knows, keeps and
// takes away.
func TestBoundsAreAdopted(t *testing.T) {
	w := newLocalWorld(t)
	w.opt.Pins = filepath.Join(bpffs(t), plan.Mark)
	if err := w.Del(plan.LocalClients{}); err != nil { // the plane that pins nothing
		t.Fatal(err)
	}
	g := newWorkload(t, w, model.UnpublishedDeny, web...)
	h, err := Open(w.ns.Path(), w.opt)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	next := &localWorld{Host: h}
	g.w = next
	want := plan.BindHooks{Cgroup: g.path, Unlisted: model.UnpublishedDeny}
	have, err := next.Observe(plan.Plan{want}, plan.Plan{want})
	if err != nil || !slices.Contains(have, plan.Object(want)) {
		t.Errorf("observed %v, %v", have, err)
	}
	g.mustBind(t, unix.SOCK_STREAM, "0.0.0.0:80")
	next.dismiss(t, g.path, web...)
	attached(t, g.path, 0, boundHooks)
	if left, err := os.ReadDir(h.opt.Pins); err != nil || len(left) != 0 {
		t.Errorf("pins are left: %v, %v", left, err)
	}
}

// TestDeadWorkloadIsForgotten removes a cgroup behind our back: its ports are
// another's to take, and nothing of it is in the way of its dismissal.
func TestDeadWorkloadIsForgotten(t *testing.T) {
	w := newLocalWorld(t)
	g := newWorkload(t, w, model.UnpublishedLoopback, web...)
	if err := os.Remove(g.path); err != nil {
		t.Fatal(err)
	}
	newWorkload(t, w, model.UnpublishedLoopback)
	all, err := w.ebpfState.Workloads()
	if err != nil || len(all) != 1 {
		t.Errorf("%d workloads are known, %v; want one", len(all), err)
	}
	if err := w.Del(plan.BindHooks{Cgroup: g.path}); err != nil {
		t.Error(err)
	}
}

// TestGrantsOfOtherProcesses: what one process of ours has granted, another
// neither grants again nor overlooks when its workload dials.
func TestGrantsOfOtherProcesses(t *testing.T) {
	w := newLocalWorld(t)
	one := newWorkload(t, w, model.UnpublishedLoopback, own("", 8080, 80)...)
	h, err := Open(w.ns.Path(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	other := &localWorld{Host: h, box: w.box}
	path := newTestCgroup(t, cgroupRoot(t))
	for host, taken := range map[string]bool{"": true, "10.9.0.1": true} {
		grants := own(host, 8081, 90)
		grants[0].Cgroup = path
		err := h.ApplyEBPF([]plan.Op{{Object: grants[0]}})
		if got := err != nil && strings.Contains(err.Error(), "8081 is granted to the workload in "+one.path); got != taken {
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

// TestTooManyGrants are told to be ranges.
func TestTooManyGrants(t *testing.T) {
	w := newLocalWorld(t)
	path := newTestCgroup(t, cgroupRoot(t))
	var many []plan.Grant
	for i := range uint16(33) {
		many = append(many, own("", 10000+2*i, 20000+2*i)...)
	}
	w.grant(t, path, many...)
	err := w.Set(plan.BindHooks{Cgroup: path, Unlisted: model.UnpublishedLoopback})
	if err == nil || !strings.Contains(err.Error(), "publish ranges") {
		t.Errorf("132 grants: %v", err)
	}
}

func TestCgroupOfAWorkload(t *testing.T) {
	h := openTestHost(t)
	for path, says := range map[string]string{
		cgroupRoot(t): "root of the hierarchy",
		t.TempDir():   "is no cgroup v2 directory",
	} {
		err := h.Set(plan.BindHooks{Cgroup: path, Unlisted: model.UnpublishedLoopback})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", path, err, says)
		}
	}
}
