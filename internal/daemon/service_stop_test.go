package daemon_test

import (
	"slices"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// TestIgnoredStop: a container that still runs after it was stopped gets flows again.
// A repeated event of the signal that it has outlived does not drain it again.
func TestIgnoredStop(t *testing.T) {
	w := newWorld(t)
	events := make(chan sandbox.ContainerEvent)
	w.containers = engineOf(events)
	w.start()
	w.network(lan)
	v := site("web", model.RealServer{Select: model.Select{Label: "app=web"}, Port: 8080, Weight: 1})
	w.serve(v)
	refs := []string{w.attach(to(w.watchedSandbox())).Attachments[0].Ref}
	shop := sandbox.ContainerEvent{Refs: refs, Name: "shop", Labels: map[string]string{"app": "web"}, Started: "1",
		StopTimeout: time.Hour}
	events <- shop
	w.stands("web", "172.30.0.2:8080 up")
	events <- sandbox.ContainerEvent{Refs: refs, Stopping: "SIGTERM"}
	w.stands("web", "172.30.0.2:8080 draining")
	shop.StopTimeout = time.Nanosecond // has passed
	events <- shop
	w.stands("web", "172.30.0.2:8080 up")
	const enabled = "its container still runs, 1ns after it was stopped"
	if !slices.ContainsFunc(w.Events(), func(e api.Event) bool {
		return e.Kind == api.RealEnabled &&
			e.Detail == enabled
	}) {
		t.Errorf("no event says that %s: %+v", enabled, w.Events())
	}
	begun := func() (n int) {
		for _, e := range w.Events() {
			if e.Kind == api.DrainBegun {
				n++
			}
		}
		return n
	}
	events <- sandbox.ContainerEvent{Refs: refs, Stopping: "SIGTERM", StoppedAt: time.Now().Add(-time.Hour)}
	events <- shop
	events <- sandbox.ContainerEvent{Refs: refs, Stopping: "it has ended", Ended: true}
	w.stands("web", "172.30.0.2:8080 draining")
	events <- shop
	w.stands("web", "172.30.0.2:8080 draining")
	if n := begun(); n != 2 {
		t.Errorf("it has drained %d times, want 2", n)
	}
}
