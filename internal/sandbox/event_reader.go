package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// eventReader follows one engine.
//
// Theory of operation. An engine tells what has happened by events, and how a
// container is by an answer that may wait until it has started or ended. A
// container that is stopped has to be told of at once, so nothing waits for
// answers: they come in beside the events. An event can be of an earlier run of
// the container than the answer, which their times show.
type eventReader struct {
	socket string
	notify func(ContainerEvent)
	known  map[string]*containerState
	// asking are the containers that are asked for; true to ask again.
	asking  map[string]bool
	answers chan learned
	// heardOf is when the last event was that was told.
	heardOf time.Time
}

// containerState is what is known of a container. Without Refs, nothing is yet.
type containerState struct {
	ContainerEvent
	stop syscall.Signal
	// end is how its run ends, or the run before.
	end end
}

// end is what ends a container's run, and when that was told.
type end struct {
	by string
	at time.Time
}

// learned is an engine's answer about a container.
type learned struct {
	id  string
	is  inspected
	err error
}

// asked bounds the questions that an engine gets at a time.
const asked = 8

// replayed is how far back events are asked for at first: a container may be
// ending by a signal that was sent while nobody listened.
const replayed = time.Minute

// hasEnded is why a container stops that has.
const hasEnded = "it has ended"

func newEventReader(socket string, notify func(ContainerEvent)) *eventReader {
	return &eventReader{socket: socket, notify: notify, known: map[string]*containerState{}, heardOf: time.Now().Add(-replayed)}
}

// follow tells what happens until the engine ends, or ctx.
func (n *eventReader) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	answer, err := get(ctx, n.socket, fmt.Sprintf("/events?since=%d&filters=%s", n.heardOf.Unix(), filters(engineEvents)))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return refusal(answer)
	}
	asOf := time.Now()
	var running []containerJSON
	if err := ask(ctx, n.socket, "/containers/json", &running); err != nil {
		return err
	}
	events, ended := make(chan engineEvent), make(chan error, 1)
	work.Go(func() { ended <- readEvents(ctx, json.NewDecoder(answer.Body), events) })
	n.asking, n.answers = map[string]bool{}, make(chan learned)
	limit := make(chan struct{}, asked)
	learn := func(id string) {
		if _, already := n.asking[id]; already {
			n.asking[id] = true
			return
		}
		n.asking[id] = false
		work.Go(func() { n.inspect(ctx, id, limit) })
	}
	n.reconcile(running, asOf, learn)
	for {
		select {
		case err := <-ended:
			return err
		case e := <-events:
			n.heard(e, learn)
		case a := <-n.answers:
			again := n.asking[a.id]
			delete(n.asking, a.id)
			n.learned(a)
			if again {
				learn(a.id)
			}
		}
	}
}

// engineEvent is an event as engines tell it.
type engineEvent struct {
	Type, Action string
	TimeNano     int64
	Actor        struct {
		ID         string
		Attributes map[string]string
	}
}

func readEvents(ctx context.Context, from *json.Decoder, events chan<- engineEvent) error {
	for {
		var e engineEvent
		if err := from.Decode(&e); err != nil {
			return err
		}
		select {
		case events <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// inspect asks for a container.
func (n *eventReader) inspect(ctx context.Context, id string, limit chan struct{}) {
	select {
	case limit <- struct{}{}:
		defer func() { <-limit }()
	case <-ctx.Done():
		return
	}
	a := learned{id: id}
	a.err = ask(ctx, n.socket, "/containers/"+id+"/json", &a.is)
	select {
	case n.answers <- a:
	case <-ctx.Done():
	}
}

// reconcile asks for the containers that run as of a time. Of those that have
// ended while the engine was away, nobody tells any more.
func (n *eventReader) reconcile(running []containerJSON, asOf time.Time, learn func(id string)) {
	still := map[string]bool{}
	for _, c := range running {
		still[c.ID] = true
		n.expect(c.ID)
		learn(c.ID)
	}
	for id, c := range n.known {
		if !still[id] {
			n.ends(c, hasEnded, asOf)
		}
	}
}

// expect returns what is known of a container.
func (n *eventReader) expect(id string) *containerState {
	if n.known[id] == nil {
		n.known[id] = &containerState{stop: unix.SIGTERM}
	}
	return n.known[id]
}

func (n *eventReader) heard(e engineEvent, learn func(id string)) {
	id, at := e.Actor.ID, time.Now()
	if e.TimeNano != 0 {
		at = time.Unix(0, e.TimeNano)
	}
	n.heardOf = at
	if e.Type == "network" {
		id = e.Actor.Attributes["container"]
	}
	action, _, _ := strings.Cut(e.Action, ":") // health_status: healthy
	if n.known[id] == nil && action != "start" && action != "connect" {
		return
	}
	c := n.expect(id)
	switch action {
	case "start", "health_status", "pause", "unpause", "rename", "connect", "disconnect":
		learn(id)
	case "kill":
		if s := signalOf(e.Actor.Attributes["signal"]); s == c.stop || s == unix.SIGTERM || s == unix.SIGKILL {
			n.ends(c, signalName(s), at)
		}
	case "die", "died":
		n.ends(c, hasEnded, at)
	case "destroy", "remove":
		delete(n.known, id)
		if len(c.Refs) > 0 {
			n.notify(ContainerEvent{Refs: c.Refs, Name: c.Name, Gone: true})
		}
	}
}

// ends notes that a container is being stopped, or has ended, at a time, and
// tells it, unless a later run is known.
func (n *eventReader) ends(c *containerState, by string, at time.Time) {
	c.end = end{by, at}
	if len(c.Refs) > 0 && at.After(c.begun()) {
		n.notify(ContainerEvent{Refs: c.Refs, Name: c.Name, Stopping: by, StoppedAt: at, Ended: by == hasEnded})
	}
}

// learned tells of a container as it is.
func (n *eventReader) learned(a learned) {
	before := n.known[a.id]
	if before == nil || a.err != nil || !a.is.State.Running {
		return // it has ended meanwhile
	}
	now := &containerState{ContainerEvent: a.is.events(), stop: a.is.signal(), end: before.end}
	if gone := n.left(a.id, before, now); len(gone) > 0 {
		n.notify(ContainerEvent{Refs: gone, Name: now.Name, Gone: true})
	}
	for other, o := range n.known {
		if other != a.id { // it may have had the name
			o.Refs = slices.DeleteFunc(o.Refs, func(ref string) bool { return ref == containerRef+now.Name })
		}
	}
	n.known[a.id] = now
	n.notify(now.ContainerEvent)
	if now.end.at.After(now.begun()) {
		n.ends(now, now.end.by, now.end.at) // before the answer came
	}
}

// left returns the references that a container had and has no more. That of a
// name that it had before stays with it until it ends, unless another has the
// name: it may be attached by that.
func (n *eventReader) left(id string, before, now *containerState) (gone []string) {
	for _, ref := range before.Refs {
		switch {
		case slices.Contains(now.Refs, ref):
		case before.Started == now.Started && strings.HasPrefix(ref, containerRef) && !n.named(ref, id):
			now.Refs = append(now.Refs, ref)
		default:
			gone = append(gone, ref)
		}
	}
	return gone
}

// named reports whether another container is called so now.
func (n *eventReader) named(ref, id string) bool {
	for other, c := range n.known {
		if other != id && containerRef+c.Name == ref {
			return true
		}
	}
	return false
}

// containerRef begins the reference of a container by its name.
const containerRef = string(Container) + ":"

// signalName writes a signal, e.g. SIGTERM; those of real time have a number.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", s)
}

// signalOf reads a signal as engines write it: 15, SIGTERM, TERM, SIGRTMIN+3.
// Nothing is SIGTERM.
func signalOf(text string) syscall.Signal {
	if n, err := strconv.Atoi(text); err == nil {
		return syscall.Signal(n)
	}
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if beyond, realtime := strings.CutPrefix(name, "SIGRTMIN+"); realtime {
		n, _ := strconv.Atoi(beyond)
		return syscall.Signal(34 + n)
	}
	if s := unix.SignalNum(name); s != 0 {
		return s
	}
	return unix.SIGTERM
}
