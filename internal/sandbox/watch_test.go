package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/sandbox"
	"fairlead/test/place"
)

// until receives ticks until reached returns true.
func until(t *testing.T, ticks <-chan struct{}, reached func() bool) {
	t.Helper()
	deadline := time.After(place.Timeout)
	for !reached() {
		select {
		case <-ticks:
		case <-deadline:
			t.Fatal("timeout: a tick is missing")
		}
	}
}

func watch(t *testing.T, f sandbox.Finder) <-chan struct{} {
	t.Helper()
	ticks, err := f.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ticks
}

func TestWatchNames(t *testing.T) {
	f := finder(t)
	f.NetnsDir = filepath.Join(f.NetnsDir, "not", "yet", "there")
	ticks := watch(t, f)
	exists := func(name string) func() bool {
		return func() bool {
			_, err := f.Resolve(t.Context(), name)
			return err == nil
		}
	}
	gone := func(name string) func() bool { return func() bool { return !exists(name)() } }
	if err := os.MkdirAll(f.NetnsDir, 0o755); err != nil {
		t.Fatal(err)
	}
	named(t, f, "web")
	until(t, ticks, exists("web"))

	// The mount table does not change for a link to a process's namespace.
	pid := workload(t, kerneltest.Netns(t)).Cmd.Process.Pid
	link := filepath.Join(f.NetnsDir, "linked")
	if err := os.Symlink(fmt.Sprintf("/proc/%d/ns/net", pid), link); err != nil {
		t.Fatal(err)
	}
	until(t, ticks, exists("linked"))
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	until(t, ticks, gone("linked"))
	unname(t, f, "web")
	until(t, ticks, gone("web"))
}

func TestWatchEngine(t *testing.T) {
	socket := socketPath(t)
	f := finder(t, socket)
	ticks := watch(t, f)
	runs := func() bool {
		_, err := f.Resolve(t.Context(), "web")
		return err == nil
	}
	pid := workload(t, kerneltest.Netns(t)).Cmd.Process.Pid
	running, exited := container{webID, "running", pid}, container{webID, "exited", 0}

	// The engine starts after the watch, ends, and starts again.
	e := newEngine(t, socket)
	for range 3 {
		e.awaitFollower()
		e.set("web", running)
		until(t, ticks, runs)
		e.set("web", exited)
		until(t, ticks, func() bool { return !runs() })
		e.stop()
		e.start()
	}
}

// awaitFollower waits until a client follows the engine's events. The engine begins to send them after the client has
// its answer, so no tick shows this.
func (e *engine) awaitFollower() {
	e.t.Helper()
	followed := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.events) > 0
	}
	for end := time.Now().Add(place.Timeout); !followed(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			e.t.Fatal("timeout: no client follows the engine's events")
		}
	}
}

// TestWatchEnds: when its context ends, Watch closes the connection to the engine.
func TestWatchEnds(t *testing.T) {
	e := newEngine(t, socketPath(t))
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := finder(t, e.socket).Watch(ctx); err != nil {
		t.Fatal(err)
	}
	e.awaitFollower()
	cancel()
	e.server.Close() // it waits until all connections are closed
}
