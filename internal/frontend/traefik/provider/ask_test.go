package provider

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/model/gateway"
	"fairlead/test/place"
)

// state is what a provider reports.
type state struct {
	servers  string
	problems []string
}

// followStates follows a provider until the end of the test, and returns what waits for a state with
// these servers, and with a problem that has each of the texts. Without texts there must be no problem.
func followStates(t *testing.T, p Provider) (until func(step, servers string, texts ...string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	states := make(chan state)
	var following sync.WaitGroup
	following.Go(func() {
		p.Follow(ctx, func(c gateway.Config, problems []traefik.Problem) {
			now := state{servers: serversOf(c)}
			for _, p := range problems {
				now.problems = append(now.problems, p.String())
			}
			select {
			case states <- now:
			case <-ctx.Done():
			}
		})
	})
	t.Cleanup(following.Wait)
	t.Cleanup(cancel)
	var last state
	return func(step, servers string, texts ...string) {
		t.Helper()
		has := func(text string) bool {
			return slices.ContainsFunc(last.problems, func(p string) bool { return strings.Contains(p, text) })
		}
		for {
			select {
			case last = <-states:
			case <-time.After(place.Timeout):
				t.Fatalf("%s: the last state is %+v, want the servers %q and problems with %q", step, last, servers,
					texts)
			}
			missing := slices.ContainsFunc(texts, func(text string) bool { return !has(text) })
			if last.servers == servers && !missing && (len(texts) > 0) == (len(last.problems) > 0) {
				return
			}
		}
	}
}

// faulty returns an engine with the container one, and its provider.
func faulty(t *testing.T) (*fakeEngine, *Docker) {
	f := newFakeEngine()
	f.set("one", "10.0.0.1", "", "")
	return f, newProvider(t, gateway.Docker{Endpoint: serve(t, f)}).(*Docker)
}

// faults are what happens to requests for a container, and the reasons that are shown.
var faults = map[string]string{"no such thing": "the engine answers 500 Internal Server Error: no such thing",
	hang: "the engine has not answered in time"}

// hang is the fault of an engine that does not answer.
const hang = "hang"

// faultyWith is faulty for a fault. The provider does not wait long for an engine that hangs.
func faultyWith(t *testing.T, fault string) (*fakeEngine, *Docker) {
	f, d := faulty(t)
	if fault == hang {
		d.engine.Limit = time.Second
	}
	return f, d
}

// TestFaultyContainer checks that a container that the engine cannot report stops no other, and gets
// requests when it can.
func TestFaultyContainer(t *testing.T) {
	for fault, why := range faults {
		t.Run(fault, func(t *testing.T) {
			f, d := faultyWith(t, fault)
			f.set("two", "10.0.0.2", "", "")
			f.fault("two", fault)
			until := followStates(t, d)
			problem := "container two: inspect the container: " + why + " (since 2"
			until("at the start", "http://10.0.0.1:80", problem)
			f.set("three", "10.0.0.3", "", "")
			f.event("start", "three", "")
			until("with a third", "http://10.0.0.1:80 http://10.0.0.3:80", problem)
			f.fault("two", "")
			all := "http://10.0.0.1:80 http://10.0.0.3:80 http://10.0.0.2:80"
			until("when it can be read", all)
			f.fault("four", fault)
			f.event("start", "four", "")
			until("with a fourth", all, "container four: inspect the container: "+why)
			f.remove("four")
			f.event("die", "four", "")
			until("when that is dead", all)
		})
	}
}

// TestFaultAfterEvent checks that a container keeps its routers if the engine cannot report it after an
// event, and that it is asked for again.
func TestFaultAfterEvent(t *testing.T) {
	for fault, why := range faults {
		t.Run(fault, func(t *testing.T) {
			f, d := faultyWith(t, fault)
			until := followStates(t, d)
			until("at the start", "http://10.0.0.1:80")
			f.fault("one", fault)
			f.event("update", "one", "")
			until("with the fault", "http://10.0.0.1:80",
				"container one: router web@docker: inspect the container: "+why, "; its last known state stays in use")
			f.set("one", "10.0.0.9", "", "")
			f.fault("one", "")
			until("when it can be read", "http://10.0.0.9:80")
			f.fault("two", fault)
			f.set("two", "10.0.0.2", "", "")
			f.event("start", "two", "")
			until("when another starts", "http://10.0.0.9:80", "container two: inspect the container: "+why)
			f.fault("two", "")
			until("when that can be read", "http://10.0.0.9:80 http://10.0.0.2:80")
			f.fault("two", fault)
			f.restart()
			until("after the engine has started again", "http://10.0.0.9:80 http://10.0.0.2:80",
				"container two: inspect the container: "+why)
			f.remove("two")
			f.fault("two", "")
			until("when it is removed", "http://10.0.0.9:80")
		})
	}
}

// TestEventsDuringQuestion checks which events of a container have an effect while the engine does not
// answer the question for it.
func TestEventsDuringQuestion(t *testing.T) {
	f, d := faulty(t)
	d.engine.Limit = time.Hour
	f.set("two", "10.0.0.2", "", "")
	f.set("three", "10.0.0.3", "", "")
	until := followStates(t, d)
	until("at the start", "http://10.0.0.1:80 http://10.0.0.3:80 http://10.0.0.2:80")
	for _, id := range []string{"two", "three"} {
		f.fault(id, hang)
		f.event("update", id, "")
	}
	f.event("kill", "two", "15")
	until("at the stop signal of the second", "http://10.0.0.1:80 http://10.0.0.3:80")
	f.event("die", "three", "")
	until("when the third is dead", "http://10.0.0.1:80")
	f.fault("three", "")
	f.event("start", "three", "")
	f.event("kill", "three", "15")
	f.event("die", "three", "")
	until("when the third has started and died", "http://10.0.0.1:80 http://10.0.0.3:80")
}

// TestEventFlood checks that events are read although a change takes long, because the engine drops those
// that are not, and that many changes have few reports.
func TestEventFlood(t *testing.T) {
	const events = 5000
	f, d := faulty(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begun, sent := make(chan struct{}), make(chan struct{})
	var following sync.WaitGroup
	defer following.Wait()
	var reports atomic.Int64
	following.Go(func() {
		d.Follow(ctx, func(c gateway.Config, _ []traefik.Problem) {
			if reports.Add(1) == 1 {
				close(begun)
				<-sent
			}
			if strings.Contains(serversOf(c), "10.0.0.2") {
				cancel()
			}
		})
	})
	<-begun
	for i := range events {
		select {
		case f.events <- eventAt(time.Duration(i), "health_status: healthy", "one", ""):
		case <-ctx.Done():
			t.Fatalf("the provider has read %d events only", i)
		}
	}
	f.set("two", "10.0.0.2", "", "")
	f.event("start", "two", "")
	close(sent)
	<-ctx.Done()
	if n := reports.Load(); context.Cause(ctx) != context.Canceled || n > events/10 {
		t.Errorf("%d reports of %d events (%v)", n, events, context.Cause(ctx))
	}
}
