package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"fairlead/internal/recovery"

	"github.com/moby/sys/signal"
	"golang.org/x/sys/unix"
)

// eventReader follows the events of one engine.
//
// Theory of operation. The engine sends an event for each change of a container.
// Its state comes from a second request, whose answer the engine may delay until
// the container has started or ended. A stop must be reported at once, so the
// reader does not wait for answers: it handles them when they arrive, between
// the events. An event may be about an earlier run of the container than the
// answer; the reader compares their times to detect this.
type eventReader struct {
	socket string
	notify func(ContainerEvent)
	known  map[string]*containerState
	// asking has the IDs of containers with a request in progress. The value is
	// true if another request must follow.
	asking  map[string]bool
	answers chan answer
	// lastEvent is the time of the last event.
	lastEvent time.Time
}

// containerState is the known state of a container. Refs is empty until the
// first answer.
type containerState struct {
	ContainerEvent
	stop syscall.Signal
	// end is the end of this run, or of the previous one.
	end end
}

// end is the end of a container's run: its cause and its time.
type end struct {
	by string
	at time.Time
}

// answer is an engine's answer about a container.
type answer struct {
	id        string
	container inspected
	err       error
}

// maxRequests bounds the concurrent requests to an engine.
const maxRequests = 8

// replayWindow is how old the first requested events may be. A container may be
// ending because of a signal that was sent before this process followed events.
const replayWindow = time.Minute

// hasEnded is ContainerEvent.Stopping of a container that has ended.
const hasEnded = "it has ended"

func newEventReader(socket string, notify func(ContainerEvent)) *eventReader {
	return &eventReader{socket: socket, notify: notify, known: map[string]*containerState{},
		lastEvent: time.Now().Add(-replayWindow)}
}

// follow reports events until the engine or ctx ends.
func (n *eventReader) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	stream, err := get(ctx, n.socket, eventsSince(n.lastEvent, engineEvents))
	if err != nil {
		return err
	}
	defer stream.Body.Close()
	if stream.StatusCode != http.StatusOK {
		return refusal(stream)
	}
	asOf := time.Now()
	var running []containerJSON
	if err := ask(ctx, n.socket, "/containers/json", &running); err != nil {
		return err
	}
	events, ended := make(chan engineEvent), make(chan error, 1)
	work.Go(func() { ended <- readEvents(ctx, json.NewDecoder(stream.Body), events) })
	n.asking, n.answers = map[string]bool{}, make(chan answer)
	limit := make(chan struct{}, maxRequests)
	request := func(id string) {
		if _, already := n.asking[id]; already {
			n.asking[id] = true
			return
		}
		n.asking[id] = false
		work.Go(func() { n.inspect(ctx, id, limit) })
	}
	n.reconcile(running, asOf, request)
	for {
		select {
		case err := <-ended:
			return err
		case e := <-events:
			n.handleEvent(e, request)
		case a := <-n.answers:
			again := n.asking[a.id]
			delete(n.asking, a.id)
			n.handleAnswer(a)
			if again {
				request(a.id)
			}
		}
	}
}

// engineEvent is an event in the format of the engine's API.
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

// inspect asks the engine for a container and sends the answer to n.answers.
func (n *eventReader) inspect(ctx context.Context, id string, limit chan struct{}) {
	select {
	case limit <- struct{}{}:
		defer func() { <-limit }()
	case <-ctx.Done():
		return
	}
	a := answer{id: id}
	a.err = ask(ctx, n.socket, "/containers/"+id+"/json", &a.container)
	select {
	case n.answers <- a:
	case <-ctx.Done():
	}
}

// reconcile requests the state of the containers that run at the given time. It
// reports the end of the other known containers: they ended while no engine
// answered, and no event reports that.
func (n *eventReader) reconcile(running []containerJSON, asOf time.Time, request func(id string)) {
	still := map[string]bool{}
	for _, c := range running {
		still[c.ID] = true
		n.state(c.ID)
		request(c.ID)
	}
	for id, c := range n.known {
		if !still[id] {
			n.reportEnd(c, hasEnded, asOf)
		}
	}
}

// state returns the state of a container, which it creates if necessary.
func (n *eventReader) state(id string) *containerState {
	if n.known[id] == nil {
		n.known[id] = &containerState{stop: unix.SIGTERM}
	}
	return n.known[id]
}

// handleEvent reports what the event says, and requests the container's state if
// the event does not contain it.
func (n *eventReader) handleEvent(e engineEvent, request func(id string)) {
	id, at := e.Actor.ID, time.Now()
	if e.TimeNano != 0 {
		at = time.Unix(0, e.TimeNano)
	}
	n.lastEvent = at
	if e.Type == "network" {
		id = e.Actor.Attributes["container"]
	}
	action, _, _ := strings.Cut(e.Action, ":") // health_status: healthy
	if n.known[id] == nil && action != "start" && action != "connect" {
		return
	}
	c := n.state(id)
	switch action {
	case "start", "health_status", "pause", "unpause", "rename", "connect", "disconnect":
		request(id)
	case "kill":
		if s := signalOf(e.Actor.Attributes["signal"]); s == c.stop || s == unix.SIGTERM || s == unix.SIGKILL {
			n.reportEnd(c, signalName(s), at)
		}
	case "die", "died":
		n.reportEnd(c, hasEnded, at)
	case "destroy", "remove":
		delete(n.known, id)
		if len(c.Refs) > 0 {
			n.notify(ContainerEvent{Refs: c.Refs, Name: c.Name, Gone: true})
		}
	}
}

// reportEnd records and reports that a container is being stopped, or has ended.
// It does not report the end of a run if a later run is known.
func (n *eventReader) reportEnd(c *containerState, by string, at time.Time) {
	c.end = end{by, at}
	if len(c.Refs) > 0 && at.After(c.startedAt()) {
		n.notify(ContainerEvent{Refs: c.Refs, Name: c.Name, Stopping: by, StoppedAt: at, Ended: by == hasEnded})
	}
}

// handleAnswer reports the state of a running container.
func (n *eventReader) handleAnswer(a answer) {
	before := n.known[a.id]
	if before == nil || a.err != nil || !a.container.State.Running {
		return // it has ended meanwhile
	}
	var now *containerState
	// The answer becomes a new value; without it, the container stays as it was.
	if recovery.Object("container "+a.id, func() {
		now = &containerState{ContainerEvent: a.container.event(), stop: a.container.stopSignal(), end: before.end}
	}) != nil {
		return
	}
	if gone := n.removedRefs(a.id, before, now); len(gone) > 0 {
		n.notify(ContainerEvent{Refs: gone, Name: now.Name, Gone: true})
	}
	for other, o := range n.known {
		if other != a.id { // it may have had this name before
			o.Refs = slices.DeleteFunc(o.Refs, func(ref string) bool { return ref == containerRef+now.Name })
		}
	}
	n.known[a.id] = now
	n.notify(now.ContainerEvent)
	if now.end.at.After(now.startedAt()) {
		n.reportEnd(now, now.end.by, now.end.at) // its event came before the answer
	}
}

// removedRefs returns the references that a container no longer has. It adds to
// now the reference by an earlier name of this run, because the container may be
// attached by that name, unless another container has the name now.
func (n *eventReader) removedRefs(id string, before, now *containerState) (gone []string) {
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

// named reports whether a container other than id has the name in ref.
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

// signalName returns the name of a signal, e.g. SIGTERM, or "signal NUMBER" for
// a real-time signal.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", s)
}

// signalOf parses a signal as engines write it: 15, SIGTERM, TERM, SIGRTMIN+3.
// An empty or unknown text is SIGTERM.
func signalOf(text string) syscall.Signal {
	if s, err := signal.ParseSignal(text); err == nil {
		return s
	}
	return unix.SIGTERM
}
