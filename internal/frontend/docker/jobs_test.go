package docker_test

import (
	"fmt"
	"testing"
	"time"

	"fairlead/internal/dockerapi"
	"fairlead/test/place"
)

// TestWorkerMayBeBehind: while the daemon does not answer about one container, any number of events of others is
// read. The daemon answers afterwards.
func TestWorkerMayBeBehind(t *testing.T) {
	e := shop()
	root, w := labels(t)
	w.admitted = make(chan admission)
	end := run(t, e, root, w)
	e.events <- &dockerapi.Event{Action: "create", Actor: dockerapi.Actor{ID: shopID}}
	e.events <- &dockerapi.Event{Action: "create", Actor: dockerapi.Actor{ID: shopID}}
	makeGroup(t, root) // the worker waits until its admission is read
	limit := time.After(place.Timeout)
	for i := range 5000 {
		select {
		case e.events <- &dockerapi.Event{Action: "die", Actor: dockerapi.Actor{ID: fmt.Sprintf("%064x", i)}}:
		case <-limit:
			t.Fatalf("event %d is not read", i)
		}
	}
	if a := <-w.admitted; a.Ref != "container:shop" {
		t.Errorf("got the admission %+v", a)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); end() }()
	for {
		select {
		case <-w.admitted: // the cgroup can be found twice
		case <-ended:
			return
		}
	}
}
