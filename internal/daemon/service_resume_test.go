package daemon_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/daemon"
	"fairlead/internal/plan"
)

// unwritten are notes of which a process dies before it writes them.
type unwritten struct{ daemon.Notes }

func (unwritten) Put(map[string]any) error { return nil }

// steps counts the steps that a host is asked for.
type steps struct {
	*gate
	taken []string
}

func (s *steps) Set(o plan.Object) error { s.taken = append(s.taken, o.Key()); return s.gate.Set(o) }

func (s *steps) ApplyEBPF(ops []plan.Op) error { s.note(ops); return s.gate.ApplyEBPF(ops) }

func (s *steps) Transact(ops []plan.Op) error { s.note(ops); return s.gate.Transact(ops) }

func (s *steps) note(ops []plan.Op) {
	for _, op := range ops {
		s.taken = append(s.taken, op.Object.Key())
	}
}

// TestOldNotes: who was out stays out and who was in stays in until their checks
// say otherwise, though the notes of the process before are older than both. To
// start takes no step in the kernel.
func TestOldNotes(t *testing.T) {
	w := newWorld(t)
	v := checked(w)
	v.Check.Fall, v.Check.Rise = 2, 2
	w.start()
	stopTwo := w.serves("10.0.0.2:8080")
	w.serve(v)
	w.stands("web", "10.0.0.2:8080 up, 10.0.0.3:8080 down")
	w.stop() // this is noted
	w.forgetful = true
	w.start()
	stopTwo()
	stopThree := w.serves("10.0.0.3:8080")
	w.stands("web", "10.0.0.2:8080 down, 10.0.0.3:8080 up")
	w.stop()

	host := &steps{gate: newGate(w)}
	w.wrap = host
	// Nothing is checked before it runs, and nothing is taken back.
	w.start()
	w.stop()
	if len(host.taken) > 0 {
		t.Errorf("to start took %q", host.taken)
	}
	w.start()
	if got := w.servers("web"); got != "10.0.0.2:8080 down, 10.0.0.3:8080 up" {
		t.Errorf("it begins with %s", got)
	}
	w.serves("10.0.0.2:8080")
	w.stands("web", "10.0.0.2:8080 up, 10.0.0.3:8080 up")
	if got := w.happened(); !slices.Equal(got, []string{"service web real 10.0.0.2:8080: up"}) {
		t.Errorf("%q", got)
	}
	stopThree()
	w.stands("web", "10.0.0.2:8080 up, 10.0.0.3:8080 down")
}

// TestKilledWithAServerOut: a daemon that was killed has noted nothing. The one
// that follows finds forwarding as it was left and leaves it so, until the server
// that was out has passed its checks.
func TestKilledWithAServerOut(t *testing.T) {
	w := newWorld(t)
	v := checked(w)
	w.serves("10.0.0.2:8080")
	socket := filepath.Join(t.TempDir(), "s")
	client, end := w.kill9(socket)
	if _, err := client.SetService(t.Context(), daemon.ServiceRequest{VirtualService: v}); err != nil {
		t.Fatal(err)
	}
	awaited := func(kind daemon.EventKind) {
		t.Helper()
		found := errors.New("found")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := client.FollowEvents(ctx, func(e daemon.Event) error {
			if e.Kind == kind && e.Object == "service web real 10.0.0.3:8080" {
				return found
			}
			return nil
		}); !errors.Is(err, found) {
			t.Fatalf("it is never told that it is %s: %v", kind, err)
		}
	}
	awaited(daemon.RealIsDown)
	end()
	rules := w.sh("nft -s list ruleset")
	client, end = w.kill9(socket)
	if got := w.sh("nft -s list ruleset"); got != rules {
		t.Errorf("the rules were\n%s\nand are\n%s", rules, got)
	}
	view, err := client.Service(t.Context(), "web")
	if err != nil || view.Servers[0].State != daemon.RealUp || view.Servers[1].State != daemon.RealDown || !strings.Contains(view.Servers[1].Cause, "when the daemon before ended") {
		t.Errorf("it begins with %+v, %v", view.Servers, err)
	}
	w.serves("10.0.0.3:8080")
	awaited(daemon.RealIsUp)
	end()
}

// TestAddedAnew: a service that is taken away and added once more begins as a new
// one, also just after a start, when that of a service which stays does not.
func TestAddedAnew(t *testing.T) {
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
		t.Errorf("it has begun as it was: %q", events)
	}
}
