package dockerapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Event is an event of a container, network, service or node.
type Event struct {
	Type, Action string
	// TimeNano is in nanoseconds since 1970, or 0 if the engine leaves it out.
	TimeNano int64 `json:"timeNano"`
	Actor    Actor
}

// Actor is the object that an event is about, as the engine's API names it.
type Actor struct {
	ID         string
	Attributes map[string]string
}

// Verb returns the action without its details, with Docker's name: "health_status: healthy" is health_status, and
// podman's died and remove are die and destroy.
func (e *Event) Verb() string {
	switch action, _, _ := strings.Cut(e.Action, ":"); action {
	case "died":
		return "die"
	case "remove":
		return "destroy"
	default:
		return action
	}
}

// Container returns the ID of the container that the event is about. That a container joins or leaves a network is an
// event of the network.
func (e *Event) Container() string {
	if e.Action == "connect" || e.Action == "disconnect" {
		return e.Actor.Attributes["container"]
	}
	return e.Actor.ID
}

// Before reports whether the event is older than the time. An engine may leave out the time of events.
func (e *Event) Before(t time.Time) bool {
	return e.TimeNano != 0 && time.Unix(0, e.TimeNano).Before(t)
}

// Subscription is what a client wants of an engine's events. It remembers the last event that was handled: the engine
// keeps events for a while, and the next Open begins with those that followed. So a stop signal between two streams is
// not missed. It is used by one goroutine.
type Subscription struct {
	Engine *Engine
	Filter Filter
	// Since is the time of the first event, in nanoseconds since 1970. Some events are then about what the client has
	// found already. 0 is the second of the engine's clock at the first Open.
	Since int64
	// Patient lets the engine take any time to begin the stream: one that starts restores its containers first.
	Patient bool
}

// ThisSecond returns Subscription.Since for events from now on of an engine with this host's clock.
func ThisSecond() int64 { return time.Now().Truncate(time.Second).UnixNano() }

// Handled notes that the event need not be sent again.
func (s *Subscription) Handled(done *Event) { s.Since = max(s.Since, done.TimeNano+1) }

// mostWaiting is how many events may wait. An engine drops events that a client does not read soon, so they are read at
// once; with too many, all is to be read anew.
const mostWaiting = 1 << 14

var (
	// ErrEnded is the error if the engine has ended its stream of events.
	ErrEnded = errors.New("the stream of events has ended")
	// errTooMany is the error if more events wait.
	errTooMany = fmt.Errorf("more than %d events wait", mostWaiting)
)

// Stream is a stream of events.
type Stream struct {
	// Events are closed when the stream or the context of Open ends.
	Events <-chan *Event
	err    error
}

// Err returns what has ended the stream, when Events are closed. It wraps ErrEnded.
func (s *Stream) Err() error { return s.err }

// Open returns the events until the context ends.
func (s *Subscription) Open(ctx context.Context) (*Stream, error) {
	if s.Since == 0 {
		if err := s.setTime(ctx); err != nil {
			return nil, err
		}
	}
	values := url.Values{}
	if s.Since != 0 {
		second := int64(time.Second)
		values.Set("since", fmt.Sprintf("%d.%09d", s.Since/second, s.Since%second))
	}
	answer, err := s.request(ctx, values)
	if err != nil {
		return nil, err
	}
	events := make(chan *Event, mostWaiting)
	stream := &Stream{Events: events}
	go func() {
		defer answer.Body.Close()
		defer close(events)
		for decoder := json.NewDecoder(answer.Body); ; {
			next := new(Event)
			err := decoder.Decode(next)
			if err == nil && len(events) == cap(events) {
				err = errTooMany
			}
			if err != nil {
				stream.err = errors.Join(ErrEnded, err)
				return
			}
			events <- next
		}
	}()
	return stream, nil
}

// setTime sets the time of the first event to the second of the engine's clock at which it answers a request, if the
// answer has it. An engine answers a request for events before it subscribes the client. A client that asks for the
// containers in between would never learn of a container that started after that.
func (s *Subscription) setTime(ctx context.Context) error {
	answer, err := s.request(ctx, nil)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if at, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		s.Since = at.UnixNano()
	}
	return nil
}

func (s *Subscription) request(ctx context.Context, values url.Values) (*http.Response, error) {
	client := s.Engine.client
	if s.Patient {
		client = s.Engine.patient()
	}
	return s.Engine.request(ctx, client, http.MethodGet, "/events"+s.Filter.query(values))
}
