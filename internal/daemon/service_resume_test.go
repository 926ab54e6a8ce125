package daemon_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/daemon/services"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/plan"
	"fairlead/test/place"
)

// unwritten are notes that are never written, as by a process that dies first.
type unwritten struct{ services.Notes }

func (unwritten) Put(map[string]any) error { return nil }

// steps records the steps that a host is asked to do.
type steps struct {
	*gate
	taken []string
}

func (s *steps) Apply(ops []plan.Op) (int, error) {
	for _, op := range ops {
		s.taken = append(s.taken, op.Object.Key())
	}
	return s.gate.Apply(ops)
}

// TestOldNotes: a server that was out stays out, and one that was in stays in, until
// their checks have another result, although the notes of the earlier process are
// older than both. The start changes nothing in the kernel.
func TestOldNotes(t *testing.T) {
	w := newWorld(t)
	v := checked(w)
	v.Check.Fall, v.Check.Rise = 2, 2
	w.start()
	stopTwo := w.serves("10.0.0.2:8080")
	w.serve(v)
	w.stands("web", "10.0.0.2:8080 up, 10.0.0.3:8080 down")
	w.stop() // saves the health
	w.forgetful = true
	w.start()
	stopTwo()
	stopThree := w.serves("10.0.0.3:8080")
	w.stands("web", "10.0.0.2:8080 down, 10.0.0.3:8080 up")
	w.stop()

	host := &steps{gate: newGate(w)}
	w.wrap = host
	// No check runs before the start, and nothing is reverted.
	w.start()
	w.stop()
	if len(host.taken) > 0 {
		t.Errorf("the start did the steps %q", host.taken)
	}
	w.start()
	if got := w.servers("web"); got != "10.0.0.2:8080 down, 10.0.0.3:8080 up" {
		t.Errorf("after the start the servers are %s", got)
	}
	w.serves("10.0.0.2:8080")
	w.stands("web", "10.0.0.2:8080 up, 10.0.0.3:8080 up")
	if got := w.happened(); !slices.Equal(got, []string{"service web real 10.0.0.2:8080: up"}) {
		t.Errorf("%q", got)
	}
	stopThree()
	w.stands("web", "10.0.0.2:8080 up, 10.0.0.3:8080 down")
}

// TestKilledWithServerDown: a daemon that was killed has saved nothing. The next one
// leaves forwarding unchanged until the server that was down passes its checks.
func TestKilledWithServerDown(t *testing.T) {
	w := newWorld(t)
	v := checked(w)
	w.serves("10.0.0.2:8080")
	socket := filepath.Join(t.TempDir(), "s")
	client, end := w.kill9(socket)
	if _, err := admin.SetService.Do(t.Context(), client, api.ServiceRequest{VirtualService: v}); err != nil {
		t.Fatal(err)
	}
	awaited := func(kind api.EventKind) {
		t.Helper()
		found := errors.New("found")
		ctx, cancel := context.WithTimeout(t.Context(), place.Timeout)
		defer cancel()
		if err := client.FollowEvents(ctx, func(e api.Event) error {
			if e.Kind == kind && e.Object == "service web real 10.0.0.3:8080" {
				return found
			}
			return nil
		}); !errors.Is(err, found) {
			t.Fatalf("no event %s: %v", kind, err)
		}
	}
	awaited(api.RealIsDown)
	end()
	rules := w.sh("nft -s list ruleset")
	client, end = w.kill9(socket)
	if got := w.sh("nft -s list ruleset"); got != rules {
		t.Errorf("the rules were\n%s\nand are\n%s", rules, got)
	}
	view, err := client.Service(t.Context(), "web")
	if err != nil || view.Servers[0].State != api.RealUp || view.Servers[1].State != api.RealDown ||
		!strings.Contains(view.Servers[1].Cause, "before the daemon's restart") {
		t.Errorf("after the start the servers are %+v, %v", view.Servers, err)
	}
	w.serves("10.0.0.3:8080")
	awaited(api.RealIsUp)
	end()
}

// TestAddedAgain: a service that is removed and added again starts as a new one, also
// right after a start, when a service that stays keeps its health.
func TestAddedAgain(t *testing.T) {
	w := newWorld(t).start()
	v := checked(w)
	w.serves("10.0.0.2:8080")
	w.serve(v)
	const one = "10.0.0.2:8080 up, 10.0.0.3:8080 down"
	w.stands("web", one)
	w.stop()
	w.start()
	if got := w.servers("web"); got != one {
		t.Errorf("after a start it has %s", got)
	}
	before := w.happened()
	if _, err := w.RemoveService("web", false); err != nil {
		t.Fatal(err)
	}
	w.serve(v)
	w.stands("web", one)
	events := w.happened()[len(before):]
	if !slices.Contains(events, "service web real 10.0.0.3:8080: down") {
		t.Errorf("it has kept its health: %q", events)
	}
}
