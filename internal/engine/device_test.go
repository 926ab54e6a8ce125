package engine_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/store"
	"fairlead/test/place"
)

// device adds a network device named nic to the server host, with settings, an
// alias and addresses. Its peer is on the client host.
func device(t testing.TB, w *topology.World) {
	t.Helper()
	server := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), w.Server().Netns.Fd())
	sh(t, w.DoClient, "set -e; ip link add lan0 type veth peer name nic netns "+server+"; ip link set lan0 up;"+
		" ip addr add 203.0.113.1/24 dev lan0; ip addr add 2001:db8:2::1/64 dev lan0 nodad")
	onServer(t, w, "set -e; ip link set nic address 52:54:00:12:34:56 mtu 1400 alias 'uplink \"7\"' up;"+
		" ip addr add 192.0.2.9/24 brd + dev nic; ip addr add 2001:db8:9::9/64 dev nic")
}

// external returns a state that moves the device nic into the sandbox at path.
func external(sandbox string) model.State {
	return model.State{
		Networks: []model.Network{{Name: "lan", Driver: model.DriverDevice, Parent: "nic"}},
		Endpoints: []model.Endpoint{{Name: "web", Network: "lan", Sandbox: sandbox, Interface: "eth0",
			Prefixes: []netip.Prefix{
				netip.MustParsePrefix("203.0.113.2/24"), netip.MustParsePrefix("2001:db8:2::2/64")}}},
	}
}

// reached fails the test unless the client host reaches the server in the
// sandbox, over both families and protocols.
func reached(t *testing.T, w *topology.World) {
	t.Helper()
	for _, proto := range protos {
		for _, addr := range both("203.0.113.2", "2001:db8:2::2", 80) {
			hears(t, w.DoClient, proto, addr, "web")
		}
	}
}

func TestDeviceIsMovedToTheSandboxAndBack(t *testing.T) {
	w := world(t)
	device(t, w)
	before := snapshot(t, w)
	s := external(mustSandbox(t, w, "web"))
	for range 2 {
		mustSet(t, w, s)
		undrifted(t, w)
		if ops, err := w.Engine.Plan(s); err != nil || len(ops) != 0 {
			t.Errorf("setting it again would: %v\n%s", err, plan.Text(ops))
		}
	}
	serve(t, in(w, "web"), "web", ":80")
	reached(t, w)
	if got := onServer(t, w, "ip -br link"); strings.Contains(got, "nic") {
		t.Errorf("the host still has the device:\n%s", got)
	}
	mustSet(t, w, model.State{})
	unchanged(t, w, before)
}

// TestDeviceSettingsInTheSandbox gives the device another name, MTU and hardware
// address in the sandbox. Then the state and the workload change them.
func TestDeviceSettingsInTheSandbox(t *testing.T) {
	w := world(t)
	device(t, w)
	before := snapshot(t, w)
	s := external(mustSandbox(t, w, "web"))
	has := func(want ...string) {
		t.Helper()
		undrifted(t, w)
		got := sh(t, in(w, "web"), "ip -o link; ip -o addr")
		for _, text := range append(want, "203.0.113.2/24", "2001:db8:2::2/64") {
			if !strings.Contains(got, text) {
				t.Errorf("the sandbox has no %s:\n%s", text, got)
			}
		}
	}
	s.Networks[0].MTU, s.Endpoints[0].MAC, s.Endpoints[0].Interface = 1300, "02:00:00:00:00:07", "lan"
	mustSet(t, w, s)
	has("lan@", "mtu 1300", "02:00:00:00:00:07")
	s.Networks[0].MTU, s.Endpoints[0].MAC = 1350, "02:00:00:00:00:08"
	mustSet(t, w, s)
	has("mtu 1350", "02:00:00:00:00:08")
	s.Networks[0].MTU, s.Endpoints[0].MAC, s.Endpoints[0].Interface = 0, "", "eth0"
	mustSet(t, w, s)
	has("eth0@", "mtu 1400", "52:54:00:12:34:56")
	const damage = "ip link set eth0 down; ip link set eth0 name mine; ip link set mine address 02:00:00:00:00:09 mtu 1280 up"
	sh(t, in(w, "web"), damage)
	if ops, err := w.Engine.Heal(context.Background()); err != nil || len(ops) == 0 {
		t.Fatalf("heal: %v %v", ops, err)
	}
	has("eth0@", "mtu 1400", "52:54:00:12:34:56")
	sh(t, in(w, "web"), damage)
	mustSet(t, w, model.State{})
	unchanged(t, w, before)
}

// TestDeviceMovesToAnotherSandbox moves the device from sandbox to sandbox, each
// time with a new engine.
func TestDeviceMovesToAnotherSandbox(t *testing.T) {
	w := world(t)
	device(t, w)
	before := snapshot(t, w)
	var kept store.Memory
	for _, name := range []string{"web", "app", "db"} {
		e, stop := daemon(t, w, &kept)
		if _, err := e.Set(t.Context(), external(mustSandbox(t, w, name))); err != nil {
			t.Fatal(err)
		}
		serve(t, in(w, name), "web", ":80")
		reached(t, w)
		stop()
	}
	e, stop := daemon(t, w, &kept)
	defer stop()
	if _, err := e.Set(t.Context(), model.State{}); err != nil {
		t.Fatal(err)
	}
	unchanged(t, w, before)
}

// daemon starts an engine on the server host that uses the given store. stop
// ends the engine as a kill does: nothing is undone.
func daemon(t testing.TB, w *topology.World, kept engine.Store) (e *engine.Engine, stop func()) {
	t.Helper()
	h, err := kernel.Open(fmt.Sprintf("/proc/self/fd/%d", w.Server().Netns.Fd()), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return engine.New(engine.Config{Kernel: h, Flows: h, Inspector: h, Store: kept, StartProxy: startProxy(t, w)}),
		func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		}
}

// container starts a process that alone keeps its network namespace alive. kill
// ends it.
func container(t *testing.T) (sandbox string, in place.Place, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	sandbox = fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
	return sandbox, func(fn func() error) error {
		ns, err := netns.Open(sandbox)
		if err != nil {
			return err
		}
		defer ns.Close()
		return ns.Do(fn)
	}, kill
}

// TestDeviceOutlivesItsSandbox kills the process that keeps a sandbox alive, and
// then removes the endpoint. A virtual device, which the kernel deletes with its
// namespace, must return to the host: also if the engine was restarted before, or
// if the workload had renamed the device.
func TestDeviceOutlivesItsSandbox(t *testing.T) {
	for _, c := range []struct {
		name              string
		restarted, rename bool
	}{{"killed", false, false}, {"renamed", false, true}, {"restarted", true, false},
		{"restarted and renamed", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			w := world(t)
			device(t, w)
			before := snapshot(t, w)
			sandbox, inside, kill := container(t)
			var kept store.Memory
			e, stop := daemon(t, w, &kept)
			if _, err := e.Set(t.Context(), external(sandbox)); err != nil {
				t.Fatal(err)
			}
			if c.rename {
				sh(t, inside, "ip link set eth0 down; ip link set eth0 name mine")
			}
			if c.restarted {
				stop()
				e, stop = daemon(t, w, &kept)
				if _, err := e.Heal(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			defer func() { stop() }()
			kill()
			if _, err := e.Set(t.Context(), model.State{}); err != nil {
				t.Fatal(err)
			}
			unchanged(t, w, before)
		})
	}
}

// TestDeviceFollowsARestartedSandbox replaces the namespace at a sandbox's path.
func TestDeviceFollowsARestartedSandbox(t *testing.T) {
	w := world(t)
	device(t, w)
	before := snapshot(t, w)
	path := filepath.Join(t.TempDir(), "box")
	for range 3 {
		sandbox, inside, kill := container(t)
		if err := os.Symlink(sandbox, path); err != nil {
			t.Fatal(err)
		}
		mustSet(t, w, external(path))
		if _, err := w.Engine.Heal(t.Context()); err != nil {
			t.Fatal(err)
		}
		undrifted(t, w)
		serve(t, inside, "web", ":80")
		reached(t, w)
		kill()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	mustSet(t, w, model.State{})
	unchanged(t, w, before)
}

// TestDeviceReturnedByTheKernel moves the device to the host under the name that
// it has in the sandbox, as the kernel does with a physical device. The engine
// must then move it to where the desired state needs it.
func TestDeviceReturnedByTheKernel(t *testing.T) {
	w := world(t)
	device(t, w)
	before := snapshot(t, w)
	s := external(mustSandbox(t, w, "web"))
	back := fmt.Sprintf("ip link set eth0 netns /proc/%d/fd/%d", os.Getpid(), w.Server().Netns.Fd())
	serve(t, in(w, "web"), "web", ":80")
	for _, want := range []model.State{s, {}} {
		mustSet(t, w, s)
		sh(t, in(w, "web"), back)
		if _, err := w.Engine.Heal(t.Context()); err != nil {
			t.Fatal(err)
		}
		undrifted(t, w)
		reached(t, w)
		sh(t, in(w, "web"), back)
		mustSet(t, w, want)
		if len(want.Networks) == 0 {
			unchanged(t, w, before)
		}
	}
	// Without a record, only the name is restored from the alias.
	mustSet(t, w, s)
	sh(t, in(w, "web"), back)
	e, stop := daemon(t, w, &store.Memory{})
	defer stop()
	ops, err := e.Heal(t.Context())
	if err != nil || !strings.Contains(plan.Text(ops), "nic gets back its name") {
		t.Errorf("heal: %v\n%s", err, plan.Text(ops))
	}
	if got := onServer(t, w, "ip -o link show nic; ip -o addr show nic"); strings.Contains(got, "192.0.2.9") ||
		strings.Contains(got, "alias") {
		t.Errorf("more than the name was restored from the alias:\n%s", got)
	}
}

// TestSandboxCannotForgeTheDeviceAlias changes the alias in the sandbox and
// restarts the engine. The device must return to the host unchanged.
func TestSandboxCannotForgeTheDeviceAlias(t *testing.T) {
	const forged = `ip link set eth0 alias 'fairlead-device:{"device":"nic","name":"evil","mtu":1280,"mac":"02:00:00:00:00:66","addresses":["198.51.100.66/24"],"alias":"x"}'`
	for _, c := range []struct{ name, script string }{
		{"other former settings", forged},
		{"another device", `ip link set eth0 alias 'fairlead-device:{"device":"other","name":"evil","mtu":1280}'`},
		{"no alias", `ip link set eth0 alias ''`},
		{"another link that claims to be the device",
			`ip link set eth0 alias ''; ip link add fake type bridge; ip link set fake alias 'fairlead-device:{"device":"nic","name":"nic","mtu":1500}'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := world(t)
			device(t, w)
			before := snapshot(t, w)
			var kept store.Memory
			e, stop := daemon(t, w, &kept)
			if _, err := e.Set(t.Context(), external(mustSandbox(t, w, "web"))); err != nil {
				t.Fatal(err)
			}
			sh(t, in(w, "web"), c.script)
			stop()
			e, stop = daemon(t, w, &kept)
			defer stop()
			if _, err := e.Heal(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Set(t.Context(), model.State{}); err != nil {
				t.Fatal(err)
			}
			unchanged(t, w, before)
		})
	}
}

// TestDeviceWhoseNameIsTaken returns a device to a host where another link has
// its name. It gets a temporary name, and its old name once that is free.
func TestDeviceWhoseNameIsTaken(t *testing.T) {
	w := world(t)
	device(t, w)
	before := snapshot(t, w)
	mustSet(t, w, external(mustSandbox(t, w, "web")))
	onServer(t, w, "ip link add nic type bridge")
	_, err := w.Engine.Set(t.Context(), model.State{})
	if err == nil || !strings.Contains(err.Error(),
		"it is back as dev0, because another link is called nic now: rename that one") {
		t.Errorf("got %v", err)
	}
	if got := onServer(t, w, "ip -o addr show dev0"); !strings.Contains(got, "192.0.2.9/24") {
		t.Errorf("the device lacks its addresses:\n%s", got)
	}
	if _, err := w.Engine.Heal(t.Context()); err == nil {
		t.Error("Heal succeeded although the name is taken")
	}
	onServer(t, w, "ip link del nic")
	if _, err := w.Engine.Heal(t.Context()); err != nil {
		t.Error(err)
	}
	undrifted(t, w)
	unchanged(t, w, before)
}

// TestEveryStepWithADeviceCanFail makes each step with a device fail in turn. The
// engine must undo the steps before.
func TestEveryStepWithADeviceCanFail(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after=%v", after), func(t *testing.T) {
			w := world(t)
			device(t, w)
			host, err := kernel.Open(fmt.Sprintf("/proc/self/fd/%d", w.Server().Netns.Fd()), kernel.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			k := &failingKernel{Host: host, n: never, left: never, after: after}
			e := engine.New(engine.Config{Kernel: k, Flows: k, Inspector: k, Store: &store.Memory{},
				StartProxy: startProxy(t, w)})
			one, other := external(mustSandbox(t, w, "web")), external(mustSandbox(t, w, "app"))
			other.Networks[0].MTU, other.Endpoints[0].Interface = 1300, "lan"
			for _, s := range []model.State{one, other} {
				s.Endpoints[0].Routes = []model.Route{{To: netip.MustParsePrefix("10.0.0.0/8"),
					Via: netip.MustParseAddr("203.0.113.1")}}
			}
			failAtEveryStep(t, w, e, k, one)
			failAtEveryStep(t, w, e, k, other)
			if err := e.TearDown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
