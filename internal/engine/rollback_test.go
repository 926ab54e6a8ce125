package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/store"
)

// TestFailureLeavesTheHostAsItWas makes a step fail for a realistic cause.
func TestFailureLeavesTheHostAsItWas(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*testing.T, *topology.World, *model.State)
		want    string
	}{
		{"interface name taken in the sandbox", func(t *testing.T, w *topology.World, _ *model.State) {
			sh(t, in(w, "app"), "ip link add eth0 type bridge")
		}, "the sandbox has an interface eth0 already"},
		{"bridge of another program with our name", func(t *testing.T, w *topology.World, _ *model.State) {
			onServer(t, w, "ip link add fl-net type bridge && ip link set fl-net up")
		}, "set link fl-net: a link of that name exists and is not Fairlead's"},
		{"link of another program with the endpoint's name", func(t *testing.T, w *topology.World, _ *model.State) {
			onServer(t, w, "ip link add fv-app type bridge")
		}, "set link fv-app: a link of that name exists and is not Fairlead's"},
		{"foreign default route in the sandbox", func(t *testing.T, w *topology.World, _ *model.State) {
			sh(t, in(w, "app"),
				"ip link add other type bridge && ip link set other up && ip route add default dev other")
		}, "a route to 0.0.0.0/0 exists and is not Fairlead's"},
		{"no such sandbox", func(_ *testing.T, _ *topology.World, s *model.State) {
			s.Endpoints[1].Sandbox = "/run/netns/never-made"
		}, "/run/netns/never-made: no such file or directory"},
		{"sandbox is no namespace", func(_ *testing.T, _ *topology.World, s *model.State) {
			s.Endpoints[1].Sandbox = "/etc/passwd"
		}, "/etc/passwd"},
		{"an address that the host does not have", func(_ *testing.T, _ *topology.World, s *model.State) {
			s.Publishes[0].HostAddr = netip.MustParseAddr("203.0.113.1")
		}, "publish on an address that this host has"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := world(t)
			s := dual(t, w, model.DriverBridge, "web", "app")
			publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
			publish(&s, "app", model.ViaProxy, model.TCP, 8081, 80)
			c.prepare(t, w, &s)
			before := snapshot(t, w)
			_, err := w.Engine.Set(context.Background(), s)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want an error about %q, got: %v", c.want, err)
			}
			unchanged(t, w, before)
			if got, err := w.Engine.Verify(context.Background()); err != nil || len(got) != 0 {
				t.Errorf("the engine keeps a state that failed: %+v, %v", got, err)
			}
		})
	}
}

// failingKernel is a kernel whose nth step fails, before or after its execution. It
// fails again when the engine retries after Observe.
type failingKernel struct {
	*kernel.Host
	n, left int
	after   bool
}

// never is a value of n with which no step fails.
const never = -2

func (b *failingKernel) failAt(n int) { b.n, b.left = n, n }

func (b *failingKernel) Observe(should, want plan.Plan) (plan.Plan, error) {
	b.left = b.n
	return b.Host.Observe(should, want)
}

var errBroken = errors.New("broken on purpose")

// Apply implements engine.Kernel. Each batch is a step, except removals of single
// objects: the engine continues after these.
func (b *failingKernel) Apply(ops []plan.Op) (done int, err error) {
	for batch := range plan.Batches(ops) {
		group := plan.GroupOf(batch[0].Object)
		counts := !batch[0].Del || group != plan.Single
		if counts {
			b.left--
		}
		var n int
		switch {
		case b.left != -1 || !counts:
			n, err = b.Host.Apply(batch)
		case b.after && !group.IsTable(): // a transaction cannot fail after it was applied
			n, err = b.Host.Apply(batch)
			err = errors.Join(err, errBroken)
		default:
			err = errBroken
		}
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

// TestEveryStepCanFail makes each step of a first Set and of a large change fail
// in turn. Each time the host and Verify must show the state before.
func TestEveryStepCanFail(t *testing.T) {
	for _, c := range []struct {
		driver model.Driver
		after  bool
	}{{model.DriverBridge, false}, {model.DriverRouted, true}} {
		t.Run(fmt.Sprintf("%s after=%v", c.driver, c.after), func(t *testing.T) {
			w := world(t)
			host, err := kernel.Open(fmt.Sprintf("/proc/self/fd/%d", w.Server().Netns.Fd()), kernel.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			k := &failingKernel{Host: host, n: never, left: never, after: c.after}
			e := engine.New(engine.Config{Kernel: k, Flows: k, Inspector: k, Store: &store.Memory{},
				StartProxy: startProxy(t, w)})
			small := dual(t, w, c.driver, "web", "app")
			publish(&small, "web", model.ViaNAT, model.TCP, 8080, 80)
			large := dual(t, w, c.driver, "web", "app", "new")
			large.Networks[0].MTU = 1400
			large.Endpoints[0].Interface = "net1"
			large.Endpoints[1].Sandbox, large.Endpoints[2].Sandbox = large.Endpoints[2].Sandbox,
				large.Endpoints[1].Sandbox
			publish(&large, "web", model.ViaProxy, model.TCP, 8080, 80)
			publish(&large, "new", model.ViaNAT, model.UDP, 8081, 80)
			failAtEveryStep(t, w, e, k, small)
			failAtEveryStep(t, w, e, k, large)
			if err := e.TearDown(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// failAtEveryStep sets a state repeatedly; a later step fails each time, until
// none does.
func failAtEveryStep(t *testing.T, w *topology.World, e *engine.Engine, k *failingKernel, s model.State) {
	t.Helper()
	before := snapshot(t, w)
	for n := 0; ; n++ {
		k.failAt(n)
		_, err := e.Set(context.Background(), s)
		k.failAt(never)
		if err == nil {
			if n < 5 {
				t.Errorf("only %d steps were tried", n)
			}
			return
		}
		if !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		unchanged(t, w, before)
		if ops, err := e.Verify(context.Background()); err != nil || len(ops) != 0 {
			t.Errorf("%v\n%s", err, plan.Text(ops))
		}
		if t.Failed() {
			t.Fatalf("step %d failed: %v", n, err)
		}
	}
}
