package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/model/gateway"
)

// fakeEngine answers like a container engine. A test uses it for orders of events that a
// real engine shows only by chance.
type fakeEngine struct {
	mu         sync.Mutex
	containers map[string]map[string]any
	events     chan string
	// missed is what the next subscription gets if it asks for the events since the last one, at
	// the time lastEvent.
	missed string
}

// lastEvent is the time of events, in seconds.
const lastEvent = 1700000000

func (f *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch path := strings.Split(r.URL.Path, "/"); {
	case r.URL.Path == "/events":
		if r.URL.Query().Get("since") == fmt.Sprintf("%d.000000001", lastEvent) {
			_, _ = io.WriteString(w, f.missed)
			f.missed = ""
		}
		w.(http.Flusher).Flush()
		events := f.events
		f.mu.Unlock()
		defer f.mu.Lock()
		for {
			select {
			case e, ok := <-events:
				if !ok {
					return
				}
				_, _ = io.WriteString(w, e)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	case r.URL.Path == "/containers/json":
		var list []map[string]any
		for id := range f.containers {
			list = append(list, map[string]any{"Id": id})
		}
		_ = json.NewEncoder(w).Encode(list)
	case len(path) == 4 && f.containers[path[2]] != nil:
		_ = json.NewEncoder(w).Encode(f.containers[path[2]])
	default:
		http.Error(w, "no such container", http.StatusNotFound)
	}
}

// join connects a container to a network.
func (f *fakeEngine) join(id, network, address, hardware string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.networks(id)[network] = map[string]any{"IPAddress": address, "MacAddress": hardware}
}

// leave disconnects a container from a network.
func (f *fakeEngine) leave(id, network string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.networks(id), network)
}

// networks returns the networks of a container. The caller has locked mu.
func (f *fakeEngine) networks(id string) map[string]any {
	return f.containers[id]["NetworkSettings"].(map[string]any)["Networks"].(map[string]any)
}

// networkEvent reports that a container has joined a network, or left it.
func (f *fakeEngine) networkEvent(action, id string) {
	f.events <- fmt.Sprintf(`{"Type":"network","Action":%q,"Actor":{"ID":"n","Attributes":{"container":%q}}}`, action, id)
}

// disable removes the labels of a container.
func (f *fakeEngine) disable(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.containers[id]["Config"].(map[string]any)["Labels"] = map[string]string{"traefik.enable": "false"}
}

// set makes a running container with one exposed port.
func (f *fakeEngine) set(id, address, health, signal string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := map[string]any{"Running": true}
	if health != "" {
		state["Health"] = map[string]any{"Status": health}
	}
	f.containers[id] = map[string]any{"Id": id, "Name": "/" + id, "State": state,
		"Config": map[string]any{"StopSignal": signal, "ExposedPorts": map[string]any{"80/tcp": map[string]any{}},
			"Labels": map[string]string{"traefik.http.routers.web.rule": "Host(`a.test`)",
				"traefik.http.services.web.loadbalancer.server.port": "80"}},
		"HostConfig":      map[string]any{"NetworkMode": "bridge"},
		"NetworkSettings": map[string]any{"Networks": map[string]any{"bridge": map[string]any{"IPAddress": address}}}}
}

func (f *fakeEngine) remove(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.containers, id)
}

// restart ends the stream of events. The containers stay.
func (f *fakeEngine) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.events)
	f.events = make(chan string)
}

func (f *fakeEngine) event(action, id, signal string) {
	f.events <- eventAt(lastEvent*time.Second, action, id, signal)
}

// eventAt returns an event of a container at a time since 1970.
func eventAt(at time.Duration, action, id, signal string) string {
	return fmt.Sprintf(`{"Type":"container","Action":%q,"timeNano":%d,"Actor":{"ID":%q,"Attributes":{"signal":%q}}}`,
		action, at.Nanoseconds(), id, signal)
}

// started sets the time of the start of a container, which is now by default.
func (f *fakeEngine) started(id string, at time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.containers[id]["State"].(map[string]any)["StartedAt"] = time.Unix(0, at.Nanoseconds())
}

// newFakeEngine returns an engine without containers.
func newFakeEngine() *fakeEngine {
	return &fakeEngine{containers: map[string]map[string]any{}, events: make(chan string)}
}

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
	p, err := New(value, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// follow follows a provider until the end of the test, and returns a check of the servers after the
// next change.
func follow(t *testing.T, p Provider) func(step, servers string) {
	t.Helper()
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
		if got := <-states; got != want {
			t.Errorf("%s: servers %q, want %q", step, got, want)
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

// TestPersist checks that a provider waits before it asks an engine again that does not answer, and
// does not if the engine has ended a stream of events.
func TestPersist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		silent := errors.New("refused")
		attempts := []struct {
			lasts time.Duration
			err   error
		}{{time.Minute, errEnded}, {0, silent}, {0, silent}, {time.Minute, errEnded}, {0, errEnded}}
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

func serversOf(c gateway.Config) string {
	var all []string
	if s := c.HTTP.Services["web@docker"]; s != nil && s.LoadBalancer != nil {
		for _, server := range s.LoadBalancer.Servers {
			if !server.Fenced {
				all = append(all, server.URL)
			}
		}
	}
	return strings.Join(all, " ")
}
