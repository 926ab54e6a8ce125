package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/store"
	"fairlead/test/process"
)

// setLoopRole names a process that sets its states in turn, repeatedly, until it
// is killed.
const setLoopRole = "engine-set-loop"

// setLoop is the configuration that the process reads from standard input.
type setLoop struct {
	// Server is the path of the server host's namespace.
	Server string
	Store  store.Places
	States []model.State
}

func runSetLoop(do setLoop) error {
	e, _, _, err := do.open()
	if err != nil {
		return err
	}
	process.Ready()
	for {
		for _, s := range do.States {
			if _, err := e.Set(context.Background(), s); err != nil {
				return err
			}
		}
	}
}

// open returns an engine without a proxy that uses the stored record.
func (do setLoop) open() (*engine.Engine, *kernel.Host, *store.File, error) {
	h, err := kernel.Open(do.Server, kernel.Options{})
	if err != nil {
		return nil, nil, nil, err
	}
	kept, err := store.OpenFile(do.Store)
	if err != nil {
		return nil, nil, nil, errors.Join(err, h.Close())
	}
	return engine.New(engine.Config{Kernel: h, Flows: h, Inspector: h, Store: kept}), h, kept, nil
}

// TestDeviceSurvivesAHundredKills kills an engine that moves a device between
// two sandboxes, a hundred times at random moments. The next engine finds the
// device wherever it is, and moves it to the desired sandbox or back to the host
// with its former settings.
func TestDeviceSurvivesAHundredKills(t *testing.T) {
	w := world(t)
	device(t, w)
	before := snapshot(t, w)
	one, other := external(process.Seen(mustSandbox(t, w, "web"))), external(process.Seen(mustSandbox(t, w, "app")))
	other.Networks[0].MTU, other.Endpoints[0].Interface = 1300, "lan"
	do := setLoop{Server: process.Seen(fmt.Sprintf("/proc/self/fd/%d", w.Server().Netns.Fd())),
		Store: store.Places{State: t.TempDir(), Run: t.TempDir()}, States: []model.State{one, {}, other, one}}
	for i := range 100 {
		killAtRandom(t, do)
		e, h, kept, err := do.open()
		if err != nil {
			t.Fatal(err)
		}
		want := []model.State{one, {}, other}[i%3]
		if _, err := e.Set(t.Context(), want); err != nil {
			t.Fatalf("after kill %d: %v", i, err)
		}
		if ops, err := e.Verify(t.Context()); err != nil || len(ops) != 0 {
			t.Errorf("after kill %d: Verify lists %v, %v", i, ops, err)
		}
		if len(want.Networks) == 0 {
			unchanged(t, w, before)
		}
		if err := errors.Join(h.Close(), kept.Close()); err != nil || t.Failed() {
			t.Fatalf("kill %d: %v", i, err)
		}
	}
	e, h, kept, err := do.open()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.TearDown(t.Context()), h.Close(), kept.Close()); err != nil {
		t.Fatal(err)
	}
	unchanged(t, w, before)
}

// killAtRandom starts the process and kills it after at most 30 ms, which is the
// time of a few changes.
func killAtRandom(t *testing.T, do setLoop) {
	t.Helper()
	p := process.Start(t, setLoopRole, do, child.Place{})
	time.Sleep(rand.N(30 * time.Millisecond))
	if err := p.Cmd.Process.Kill(); err != nil {
		t.Errorf("the engine ended by itself: %v", err)
	}
	var killed *exec.ExitError
	if err := p.Wait(); !errors.As(err, &killed) || killed.Exited() {
		t.Errorf("the engine ended by itself: %v", err)
	}
}

// TestNextEngineRemovesWhatTheRecordNoLongerHas simulates a kill after the
// engine saved an empty applied state and before it changed the kernel. The next
// engine still removes links that exist only in a sandbox, also incomplete ones.
func TestNextEngineRemovesWhatTheRecordNoLongerHas(t *testing.T) {
	for _, d := range []model.Driver{model.DriverDevice, model.DriverMacvlan} {
		for _, damage := range []string{"true", "ip link set eth0 down"} {
			t.Run(fmt.Sprintf("%s %s", d, damage), func(t *testing.T) {
				w := world(t)
				device(t, w)
				before := snapshot(t, w)
				s := external(mustSandbox(t, w, "web"))
				s.Networks[0].Driver = d
				var kept store.Memory
				e, stop := daemon(t, w, &kept)
				if _, err := e.Set(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				stop()
				sh(t, in(w, "web"), damage)
				record, err := kept.Load()
				record.Applied = model.State{}
				if err = errors.Join(err, kept.Save(record)); err != nil {
					t.Fatal(err)
				}
				e, stop = daemon(t, w, &kept)
				defer stop()
				if _, err := e.Set(t.Context(), model.State{}); err != nil {
					t.Fatal(err)
				}
				unchanged(t, w, before)
				if links := sh(t, in(w, "web"), "ip -o link"); strings.Contains(links, "eth0") {
					t.Errorf("the sandbox still has:\n%s", links)
				}
				if record, err := kept.Load(); err != nil || len(record.Inside) != 0 {
					t.Errorf("the record still has %v, %v", record.Inside, err)
				}
			})
		}
	}
}
