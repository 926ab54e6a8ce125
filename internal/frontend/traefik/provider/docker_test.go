package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/dockerapi"
	"fairlead/internal/frontend/traefik"
	"fairlead/internal/model/gateway"
	"fairlead/test/place"
)

// followEngine follows the engine's containers, and returns a check of the servers after the next
// change.
func followEngine(t *testing.T, f *fakeEngine) func(step, servers string) {
	t.Helper()
	return follow(t, newProvider(t, gateway.Docker{Endpoint: serve(t, f)}))
}

// serve returns the URL of an engine, which runs until the end of the test.
func serve(t *testing.T, engine http.Handler) string {
	server := httptest.NewServer(engine)
	t.Cleanup(server.Close)
	return server.URL
}

func newProvider(t *testing.T, value gateway.Docker) Provider {
	t.Helper()
	p, err := NewDocker(value, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// follow follows a provider until the end of the test, and returns a check of the servers after the
// next change.
func follow(t *testing.T, p Provider) func(step, servers string) {
	t.Helper()
	if d, ok := p.(*Docker); ok {
		d.patience = place.Timeout // changes do not come before answers that are late on a busy machine
	}
	ctx, cancel := context.WithCancel(context.Background())
	states := make(chan string)
	var following sync.WaitGroup
	following.Go(func() {
		p.Follow(ctx, func(c gateway.Config, _ []traefik.Problem) {
			select {
			case states <- serversOf(c):
			case <-ctx.Done():
			}
		})
	})
	t.Cleanup(following.Wait)
	t.Cleanup(cancel)
	return func(step, want string) {
		t.Helper()
		select {
		case got := <-states:
			if got != want {
				t.Errorf("%s: servers %q, want %q", step, got, want)
			}
		case <-time.After(place.Timeout):
			t.Fatalf("%s: no change, want servers %q", step, want)
		}
	}
}

// TestContainersComeAndGo checks which servers get requests after each event.
func TestContainersComeAndGo(t *testing.T) {
	f := newFakeEngine()
	f.set("one", "10.0.0.1", "", "")
	want := followEngine(t, f)
	want("at the start", "http://10.0.0.1:80")
	f.set("two", "10.0.0.2", "starting", "SIGQUIT")
	f.event("start", "two", "")
	want("while the second starts", "http://10.0.0.1:80")
	f.set("two", "10.0.0.2", "healthy", "SIGQUIT")
	f.event("health_status: healthy", "two", "")
	want("when the second is healthy", "http://10.0.0.1:80 http://10.0.0.2:80")
	f.event("kill", "two", "1") // SIGHUP only reloads
	f.event("kill", "two", "15")
	f.event("kill", "two", "3")
	want("at its stop signal", "http://10.0.0.1:80")
	f.event("kill", "one", "9")
	want("at SIGKILL", "")
	f.remove("two")
	f.event("die", "two", "")
	want("when the second is dead", "")
	f.event("start", "one", "")
	want("when the first starts again", "http://10.0.0.1:80")
	f.restart()
	want("after a restart of the engine", "http://10.0.0.1:80")
}

// TestStartBeforeSubscription starts a container when the engine has answered the request for events and that for
// the containers, but has not yet begun to send events.
func TestStartBeforeSubscription(t *testing.T) {
	f := newFakeEngine()
	f.setStopped("one")
	f.listed = func() { f.set("one", "10.0.0.1", "", "") }
	f.missed = eventAt(lastEvent*time.Second, "start", "one", "")
	want := followEngine(t, f)
	want("before", "no service")
	want("after its start", "http://10.0.0.1:80")
}

// TestStopSignals: a container of systemd stops at SIGRTMIN+3, which the engine's event reports as 37.
func TestStopSignals(t *testing.T) {
	for _, c := range []struct {
		stopSignal, sent string
		want             bool
	}{
		{"", "15", true}, {"", "1", false}, {"", "", false}, {"", "9", true},
		{"sigquit", "3", true}, {"SIGQUIT", "15", false}, {"15", "SIGTERM", true},
		{"SIGRTMIN+3", "37", true}, {"RTMIN+3", "37", true}, {"SIGRTMIN+3", "15", false},
		{"nonsense", "15", false}, {"nonsense", "KILL", true},
	} {
		if got := stops(c.stopSignal, c.sent); got != c.want {
			t.Errorf("stop signal %q, sent %q: %v", c.stopSignal, c.sent, got)
		}
	}
}

// TestMissedEvents checks a stop signal that the engine sends between two subscriptions, and one whose
// container has started again before the containers are listed.
func TestMissedEvents(t *testing.T) {
	const first, last = lastEvent*time.Second - time.Hour, lastEvent * time.Second
	f := newFakeEngine()
	for id, address := range map[string]string{"one": "10.0.0.1", "two": "10.0.0.2", "three": "10.0.0.3"} {
		f.set(id, address, "", "")
		f.started(id, first)
	}
	want := followEngine(t, f)
	want("at the start", "http://10.0.0.1:80 http://10.0.0.3:80 http://10.0.0.2:80")
	f.event("kill", "one", "15")
	want("at the first one's stop signal", "http://10.0.0.3:80 http://10.0.0.2:80")
	f.missed = eventAt(last+1, "kill", "two", "15") + eventAt(last+2, "kill", "three", "15") +
		eventAt(last+3, "die", "two", "")
	f.started("one", last+4)
	f.started("two", last+4)
	f.restart()
	want("after both have started again", "http://10.0.0.1:80 http://10.0.0.3:80 http://10.0.0.2:80")
	want("at the second one's old signal", "http://10.0.0.1:80 http://10.0.0.3:80 http://10.0.0.2:80")
	want("at the third one's stop signal", "http://10.0.0.1:80 http://10.0.0.2:80")
	want("at the second one's old end", "http://10.0.0.1:80 http://10.0.0.2:80")
}

// TestSurvivors checks that a container gets requests again if it survives its stop signal.
func TestSurvivors(t *testing.T) {
	f := newFakeEngine()
	f.set("one", "10.0.0.1", "", "")
	f.set("two", "10.0.0.2", "", "")
	f.containers["two"]["Config"].(map[string]any)["StopTimeout"] = 3600
	d := newProvider(t, gateway.Docker{Endpoint: serve(t, f)}).(*Docker)
	if err := d.list(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"one", "two"} {
		kill := &dockerapi.Event{Action: "kill"}
		kill.Actor.ID, kill.Actor.Attributes = id, map[string]string{"signal": "15"}
		d.handle(t.Context(), kill)
	}
	now := time.Now()
	for _, step := range []struct {
		after   time.Duration
		differs bool
		want    string
	}{{survival / 2, false, ""}, {2 * survival, true, "http://10.0.0.1:80"},
		{3 * survival, false, "http://10.0.0.1:80"}, {2 * time.Hour, true, "http://10.0.0.1:80 http://10.0.0.2:80"}} {
		differs := d.survived(now.Add(step.after))
		c, _ := d.config()
		if got := serversOf(c); differs != step.differs || got != step.want {
			t.Errorf("after %v: %t, servers %q, want %t, %q", step.after, differs, got, step.differs, step.want)
		}
	}
}

// TestPersist checks that a provider waits before it asks an engine again that does not answer, and
// does not if the engine has ended a stream of events.
func TestPersist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		silent := errors.New("refused")
		attempts := []struct {
			lasts time.Duration
			err   error
		}{{time.Minute, dockerapi.ErrEnded}, {0, silent}, {0, silent}, {time.Minute, dockerapi.ErrEnded},
			{0, dockerapi.ErrEnded}}
		begin, warnings := time.Now(), 0
		log := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
			warnings++
			return len(b), nil
		}), nil))
		var calls []string
		persist(ctx, log, func() error {
			calls = append(calls, time.Since(begin).String())
			if len(calls) > len(attempts) {
				cancel()
				return ctx.Err()
			}
			this := attempts[len(calls)-1]
			time.Sleep(this.lasts)
			return this.err
		})
		if want := []string{"0s", "1m0s", "1m1s", "1m2s", "2m2s", "2m3s"}; !slices.Equal(calls, want) {
			t.Errorf("calls at %v, want %v", calls, want)
		}
		if warnings != 2 {
			t.Errorf("%d warnings, want one for each time without an answer", warnings)
		}
	})
}

// TestOutage checks that a provider reports an engine that is away for some time, with the last
// configuration, once for each reason.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		config := gateway.Config{HTTP: gateway.HTTP{Services: map[string]*gateway.Service{}}}
		var states []string
		changed := func(c gateway.Config, problems []traefik.Problem) {
			text := fmt.Sprint(time.Since(begin), ":")
			if c.HTTP.Services == nil {
				text += " without the configuration"
			}
			for _, p := range problems {
				text += " " + p.String()
			}
			states = append(states, text)
		}
		log := slog.New(slog.DiscardHandler)
		persist(ctx, log, showOutages("provider docker", changed, func(changed Changed) error {
			switch at := time.Since(begin); {
			case at < 3*time.Second, at > 30*time.Second && at < 33*time.Second, at > 50*time.Second:
				return errors.New("refused")
			case at > 20*time.Second && at < 30*time.Second:
				return errors.New("reset")
			case at > 40*time.Second:
				cancel()
			case at < 10*time.Second || at > 33*time.Second:
				changed(config, nil)
				time.Sleep(7 * time.Second)
				return dockerapi.ErrEnded
			}
			return errors.New("refused")
		}))
		away := func(at, err string) string {
			return at + ": provider docker: the engine does not answer: " + err +
				" (since 2000-01-01 00:00:10 UTC); its containers stay as they are"
		}
		want := []string{"3s:", away("15s", "refused"), away("21s", "reset"), away("30s", "refused"), "34s:"}
		if !slices.Equal(states, want) {
			t.Errorf("states\n%s\nwant\n%s", strings.Join(states, "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestNonRunning checks that a container whose labels allow it has routers also while it does not run.
func TestNonRunning(t *testing.T) {
	f := newFakeEngine()
	f.setStopped("one")
	want := followEngine(t, f)
	want("one that is not allowed", "no service")
	f.setStopped("two")
	f.allow("two")
	f.events <- `{"Type":"container","Action":"create","Actor":{"ID":"two",` +
		`"Attributes":{"traefik.docker.allownonrunning":"true"}}}`
	want("when one is created", "")
	f.restart()
	want("when it is listed", "")
	f.set("two", "10.0.0.2", "", "")
	f.allow("two")
	f.event("start", "two", "")
	want("when it starts", "http://10.0.0.2:80")
	f.event("die", "two", "")
	want("when it is dead", "")
	f.event("destroy", "two", "")
	want("when it is removed", "no service")
}

// TestNetworksOfContainers checks that a container gets requests when it joins a network.
func TestNetworksOfContainers(t *testing.T) {
	f := newFakeEngine()
	f.set("one", "", "", "")
	want := followEngine(t, f)
	want("without an address", "")
	f.join("one", "front", "10.0.1.1", "")
	f.networkEvent("connect", "one")
	want("with an address", "http://10.0.1.1:80")
}

// serversOf returns the servers of the service web that get requests.
func serversOf(c gateway.Config) string {
	s := c.HTTP.Services["web@docker"]
	if s == nil || s.LoadBalancer == nil {
		return "no service"
	}
	var all []string
	for _, server := range s.LoadBalancer.Servers {
		if !server.Fenced {
			all = append(all, server.URL)
		}
	}
	return strings.Join(all, " ")
}
