package sandbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"fairlead/internal/dockerapi"
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
	engine *dockerapi.Engine
	events dockerapi.Subscription
	notify func(ContainerEvent)
	known  map[string]*containerState
	// asking has the IDs of containers with a request in progress. The value is
	// true if another request must follow.
	asking map[string]bool
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

// maxRequests bounds the concurrent requests to an engine.
const maxRequests = 8

// replayWindow is how old the first requested events may be. A container may be
// ending because of a signal that was sent before this process followed events.
const replayWindow = time.Minute

// hasEnded is ContainerEvent.Stopping of a container that has ended.
const hasEnded = "it has ended"

func newEventReader(socket string, notify func(ContainerEvent)) *eventReader {
	e := dockerapi.Unix(socket)
	return &eventReader{engine: e, notify: notify, known: map[string]*containerState{},
		events: dockerapi.Subscription{Engine: e, Filter: engineEvents,
			Since: time.Now().Add(-replayWindow).UnixNano(), Patient: true}}
}

// follow reports events until the engine or ctx ends.
func (n *eventReader) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := n.events.Open(ctx)
	if err != nil {
		return err
	}
	asOf := time.Now()
	running, err := n.engine.Running(ctx, nil)
	if err != nil {
		return err
	}
	n.asking = map[string]bool{}
	inspections := dockerapi.NewInspections[struct{}](n.engine, maxRequests)
	request := func(id string) {
		_, already := n.asking[id]
		n.asking[id] = already
		if !already {
			inspections.Ask(ctx, id, struct{}{})
		}
	}
	n.reconcile(running, asOf, request)
	for {
		select {
		case e, ok := <-stream.Events:
			if !ok {
				return stream.Err()
			}
			n.handleEvent(e, request)
			n.events.Handled(e)
		case a := <-inspections.Answers:
			again := n.asking[a.ID]
			delete(n.asking, a.ID)
			if a.Err == nil {
				n.handleAnswer(a.ID, &a.Container)
			}
			if again {
				request(a.ID)
			}
		}
	}
}

// reconcile requests the state of the containers that run at the given time. It
// reports the end of the other known containers: they ended while no engine
// answered, and no event reports that.
func (n *eventReader) reconcile(running []dockerapi.Listed, asOf time.Time, request func(id string)) {
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
func (n *eventReader) handleEvent(e *dockerapi.Event, request func(id string)) {
	id, at, action := e.Container(), time.Now(), e.Verb()
	if e.TimeNano != 0 {
		at = time.Unix(0, e.TimeNano)
	}
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
	case "die":
		n.reportEnd(c, hasEnded, at)
	case "destroy":
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
func (n *eventReader) handleAnswer(id string, c *dockerapi.Inspected) {
	before := n.known[id]
	if before == nil || !c.State.Running {
		return // it has ended meanwhile
	}
	var now *containerState
	// The answer becomes a new value; without it, the container stays as it was.
	if recovery.Object("container "+id, func() {
		now = &containerState{ContainerEvent: event(c), stop: signalOf(c.Config.StopSignal), end: before.end}
	}) != nil {
		return
	}
	if gone := n.removedRefs(id, before, now); len(gone) > 0 {
		n.notify(ContainerEvent{Refs: gone, Name: now.Name, Gone: true})
	}
	for other, o := range n.known {
		if other != id { // it may have had this name before
			o.Refs = slices.DeleteFunc(o.Refs, func(ref string) bool { return ref == containerRef+now.Name })
		}
	}
	n.known[id] = now
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
