package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/store"
)

// failingUplinks is a kernel that cannot attach our program to uplinks that lack it
// while refuses is true.
type failingUplinks struct {
	*kernel.Host
	refuses bool
}

func (f *failingUplinks) Apply(ops []plan.Op) (done int, err error) {
	for batch := range plan.Batches(ops) {
		if u, is := batch[0].Object.(plan.Uplinks); is && !batch[0].Del && f.refuses && !u.Partly {
			return done, errBroken
		}
		n, err := f.Host.Apply(batch)
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

// TestFailedAttachKeepsOtherLinks adds a link to which our program cannot be
// attached. All other links keep the program, both when Heal repairs the host
// and when Set applies a change.
func TestFailedAttachKeepsOtherLinks(t *testing.T) {
	w := world(t)
	host, err := kernel.Open(fmt.Sprintf("/proc/self/fd/%d", w.Server().Netns.Fd()), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	k := &failingUplinks{Host: host}
	e := engine.New(engine.Config{Kernel: k, Flows: k, Inspector: k, Store: &store.Memory{},
		StartProxy: startProxy(t, w)})
	defer func() {
		if err := e.TearDown(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	s := dual(t, w, model.DriverBridge, "web")
	publish(&s, "web", model.ViaEBPF, model.TCP, 8080, 80)
	if _, err := e.Set(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	serve(t, in(w, "web"), "web", ":80")
	works := func() {
		t.Helper()
		hears(t, w.DoClient, model.TCP, "198.51.100.2:8080", "web")
		hears(t, w.DoServer, model.TCP, "127.0.0.1:8080", "web")
	}
	works()
	onServer(t, w, "ip link add odd0 type veth peer name odd1")
	k.refuses = true
	if ops, err := e.HealPart(context.Background(), plan.Plan{plan.Uplinks{}}); !errors.Is(err, errBroken) {
		t.Errorf("%v\n%s", err, plan.Text(ops))
	}
	works()
	if ops, err := e.Heal(context.Background()); !errors.Is(err, errBroken) {
		t.Errorf("%v\n%s", err, plan.Text(ops))
	}
	works()
	publish(&s, "web", model.ViaEBPF, model.TCP, 8081, 80)
	if _, err := e.Set(context.Background(), s); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	works()
	k.refuses = false
	if _, err := e.Heal(context.Background()); err != nil {
		t.Error(err)
	}
	works()
	if ops, err := e.Verify(context.Background()); err != nil || len(ops) != 0 {
		t.Errorf("%v\n%s", err, plan.Text(ops))
	}
}
