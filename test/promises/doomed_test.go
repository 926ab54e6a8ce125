package promises_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
	"fairlead/internal/proxy"
	"fairlead/internal/store"
	"fairlead/test/process"

	"golang.org/x/sys/unix"
)

// engineRole is the role of a process that runs an engine and waits to be killed.
const engineRole = "doomed-engine"

// order is the input of the process.
type order struct {
	// Server is the path of the server host's namespace.
	Server string
	// Pins is a bpffs, and Run a directory. Both outlive the process.
	Pins, Run string
	State     model.State
	Facts     plan.Facts
}

// keeping returns the configuration of a proxy that outlives the process.
func keeping(run string, netns *os.File) proxy.Keeping {
	return proxy.Keeping{Socket: filepath.Join(run, "proxy"), Errors: filepath.Join(run, "log"), Netns: netns,
		Log: slog.New(slog.DiscardHandler)}
}

// runEngine applies the state, reports that it is ready, and waits.
func runEngine(do order) error {
	h, err := kernel.Open(do.Server, kernel.Options{Pins: do.Pins})
	if err != nil {
		return err
	}
	e := engine.New(engine.Config{Kernel: h, Flows: h, Inspector: h, Store: &store.Memory{}, Facts: do.Facts,
		StartProxy: func(ctx context.Context) (engine.Proxy, error) {
			return proxy.Keep(ctx, keeping(do.Run, h.Netns()))
		}})
	if _, err := e.Set(context.Background(), do.State); err != nil {
		return err
	}
	process.Ready()
	return unix.Pause()
}

// doomed is a world whose engine is a separate process. The engine is killed when all observers are
// ready.
type doomed struct {
	world *topology.World
	ready sync.WaitGroup
	// dead is closed when the engine has ended and the workloads that are processes of the host
	// listen again. err is set if one of them does not.
	dead chan struct{}
	err  error
}

func newDoomed(t *testing.T, facts plan.Facts, d model.Driver, modes []model.Via) *doomed {
	t.Helper()
	w := newWorld(t, facts)
	s := desired(t, w, d, modes)
	pins := mountPins(t)
	for i := range s.Endpoints {
		s.Endpoints[i].Sandbox = process.Seen(s.Endpoints[i].Sandbox)
	}
	at := keeping(t.TempDir(), w.Server().Netns)
	t.Cleanup(func() { endProxy(t, at) })
	p := process.Start(t, engineRole, order{process.Seen(fmt.Sprintf("/proc/self/fd/%d", w.Server().Netns.Fd())), pins,
		filepath.Dir(at.Socket), s, facts}, child.Place{})
	workers := startWorkloads(t, w, s)
	doom := &doomed{world: w, dead: make(chan struct{})}
	doom.ready.Add(len(modes) * len(publishProbers[promise.Survives].flavors))
	go func() {
		defer close(doom.dead)
		doom.ready.Wait()
		doom.err = kill(p)
		for _, w := range workers {
			doom.err = errors.Join(doom.err, w.listen())
		}
	}()
	return doom
}

// kill kills the engine. It returns an error if the engine has already ended.
func kill(engine *process.Process) error {
	select {
	case <-engine.Done():
		return fmt.Errorf("the engine ended before it was killed: %w", engine.Wait())
	default:
		return engine.Kill()
	}
}

// endProxy ends the proxy that an engine has left running, if any.
func endProxy(t *testing.T, at proxy.Keeping) {
	p, err := proxy.Find(context.Background(), at)
	if p != nil {
		err = p.Close()
	}
	if err != nil {
		t.Error(err)
	}
}

// mountPins mounts a bpffs until the end of the test, and returns a directory in
// it.
func mountPins(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0700"); err != nil {
		t.Fatalf("mount a bpffs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "fairlead") // the kernel may have put files into dir
}
