package soak_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/model"
	"fairlead/test/process"

	"golang.org/x/sys/unix"
)

// pause is the time between two changes.
const pause = 100 * time.Millisecond

// room runs the server host's engine, one process after another.
type room struct {
	world  *world
	ledger *ledger
	items  []*item
	record string
	cycle  time.Duration
	engine *running
	wrongs wrongs

	changes, kills atomic.Int64
}

// running is one engine process.
type running struct {
	*child.Process
	order   io.WriteCloser
	states  *json.Encoder
	answers *json.Decoder
}

// newRoom starts the first engine and applies the first publishes.
func newRoom(t *testing.T, w *world, cycle time.Duration) *room {
	t.Helper()
	// Orphans of the engines become children of this process and are found at the end.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	r := &room{world: w, ledger: newLedger(), items: items(), cycle: cycle,
		record: filepath.Join(t.TempDir(), "record.json")}
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	if err := r.set(publishes(r.items)); err != nil {
		t.Fatal(err)
	}
	return r
}

// start runs a new engine process.
func (r *room) start() error {
	cmd := child.Self(engineRole)
	cmd.Stderr = os.Stderr
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	answers, answersOut, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdin, cmd.Stdout = in, answersOut
	p, err := child.Start(r.world.t.Context(), cmd, child.Place{})
	in.Close()
	answersOut.Close()
	if err != nil {
		return err
	}
	r.engine = &running{p, out, json.NewEncoder(out), json.NewDecoder(answers)}
	server := process.Seen(fmt.Sprintf("/proc/self/fd/%d", r.world.Server().Netns.Fd()))
	return r.engine.states.Encode(order{server, r.world.pinned(), r.record, r.world.facts})
}

// errKilled is returned if the engine was killed before it answered.
var errKilled = errors.New("the engine was killed")

// set makes the engine apply the publishes, and updates the ledger.
func (r *room) set(all []model.Publish) error {
	want := r.world.base.Clone()
	want.Publishes = all
	own := owners(all)
	r.ledger.begin(own)
	if err := r.send(want); err != nil {
		return err
	}
	r.ledger.end(own)
	r.changes.Add(1)
	return nil
}

// send makes the engine apply a state.
func (r *room) send(want model.State) error {
	if r.engine.states.Encode(want) != nil {
		return errKilled
	}
	var a answer
	if r.engine.answers.Decode(&a) != nil {
		return errKilled
	}
	if a.Err != "" {
		return errors.New(a.Err)
	}
	return nil
}

// churn changes one publish after another, and kills the engine once per cycle, during any step.
func (r *room) churn(ctx context.Context) {
	doom := time.AfterFunc(r.cycle, r.kill(r.engine))
	defer func() { doom.Stop() }()
	for ctx.Err() == nil {
		time.Sleep(pause)
		r.items[rand.IntN(len(r.items))].change()
		err := r.set(publishes(r.items))
		if errors.Is(err, errKilled) {
			err = r.restart()
			doom = time.AfterFunc(r.cycle, r.kill(r.engine))
		}
		if err != nil {
			r.wrongs.note(fmt.Errorf("set the publishes: %w", err))
			return
		}
	}
}

// kill returns a function that kills the engine.
func (r *room) kill(e *running) func() {
	return func() {
		r.kills.Add(1)
		_ = e.Kill() // send returns errKilled then
	}
}

// restart starts a new engine, which adopts the state that the killed engine has left.
func (r *room) restart() error {
	r.engine.order.Close()
	if err := r.start(); err != nil {
		return err
	}
	return r.set(publishes(r.items))
}

// withdraw removes all publishes, then everything else, and ends the engine.
func (r *room) withdraw() {
	t := r.world.t
	t.Helper()
	if err := errors.Join(r.set(nil), r.send(model.State{}), r.engine.order.Close()); err != nil {
		t.Fatalf("withdraw the publishes: %v", err)
	}
	if err := r.engine.Wait(); err != nil {
		t.Errorf("end the engine: %v", err)
	}
}
