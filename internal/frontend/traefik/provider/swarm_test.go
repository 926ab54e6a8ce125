package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/model/gateway"
)

// fakeSwarm answers like an engine that is a manager. A test uses it for states of tasks that a real
// engine shows only by chance, and for tasks on other nodes.
type fakeSwarm struct {
	mu     sync.Mutex
	tasks  []map[string]any
	label  string
	events chan string
	// subscribed gets the time since which each subscription wants events. It may be nil.
	subscribed chan string
	// refused are the beginnings of the paths whose requests are refused.
	refused []string
}

// refuse replaces the beginnings of the paths whose requests are refused.
func (f *fakeSwarm) refuse(paths ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = paths
}

func (f *fakeSwarm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/events" {
		since := r.URL.Query().Get("since")
		if since == "" {
			answerFirst(w, r)
			return
		}
		w.(http.Flusher).Flush()
		if f.subscribed != nil {
			f.subscribed <- since
		}
		for {
			select {
			case e, ok := <-f.events:
				if !ok {
					return
				}
				_, _ = io.WriteString(w, e)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.refused, func(begin string) bool { return strings.HasPrefix(r.URL.Path, begin) }) {
		http.Error(w, "no right", http.StatusForbidden)
		return
	}
	switch r.URL.Path {
	case "/services":
		labels := map[string]string{"traefik.http.routers.web.rule": "Host(`a.test`)",
			"traefik.http.services.web.loadbalancer.server.port": "80"}
		if f.label != "" {
			labels[f.label] = "true"
		}
		_ = json.NewEncoder(w).Encode([]map[string]any{{"ID": "s", "Spec": map[string]any{"Name": "site_web",
			"Labels": labels}, "Endpoint": map[string]any{"VirtualIPs": []map[string]any{
			{"NetworkID": "n", "Addr": "10.0.9.9/24"}}}}})
	case "/tasks":
		_ = json.NewEncoder(w).Encode(f.tasks)
	case "/nodes":
		_ = json.NewEncoder(w).Encode([]map[string]any{{"ID": "second", "Status": map[string]any{"Addr": "192.0.2.2"}}})
	case "/containers/cgateway/json":
		_ = json.NewEncoder(w).Encode(map[string]any{"Id": "cgateway", "NetworkSettings": map[string]any{
			"Networks": map[string]any{"front": map[string]any{}}}})
	default:
		http.Error(w, "no such container", http.StatusNotFound)
	}
}

// set replaces the tasks.
func (f *fakeSwarm) set(tasks ...map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tasks = tasks
}

// taskOf returns a task with an address on a network.
func taskOf(id, network, address, state, desired string) map[string]any {
	return map[string]any{"ID": id, "ServiceID": "s", "NodeID": "second", "Slot": 1, "DesiredState": desired,
		"Spec":   map[string]any{"ContainerSpec": map[string]any{"StopSignal": "SIGQUIT"}},
		"Status": map[string]any{"State": state, "ContainerStatus": map[string]any{"ContainerID": "c" + id}},
		"NetworksAttachments": []map[string]any{{"Network": map[string]any{"ID": "n",
			"Spec": map[string]any{"Name": network}}, "Addresses": []string{address}}}}
}

func newSwarmProvider(t *testing.T, engine string) *Swarm {
	t.Helper()
	return newProvider(t, gateway.Docker{Endpoint: engine, SwarmMode: true,
		RefreshSeconds: 10 * time.Millisecond}).(*Swarm)
}

// followSwarm follows the swarm and returns a check of the servers after the next change.
func followSwarm(t *testing.T, f *fakeSwarm) func(step, servers string) {
	return follow(t, newSwarmProvider(t, serve(t, f)))
}

// TestTasksComeAndGo checks which servers get requests after each change of a service's tasks.
func TestTasksComeAndGo(t *testing.T) {
	f := &fakeSwarm{events: make(chan string)}
	one := taskOf("1", "front", "10.0.0.1/24", "running", "running")
	f.set(one)
	want := followSwarm(t, f)
	want("at the start", "http://10.0.0.1:80")
	f.set(one, taskOf("2", "front", "10.0.0.2/24", "starting", "running"),
		taskOf("3", "front", "10.0.0.3/24", "running", "running"))
	want("while the second starts", "http://10.0.0.1:80 http://10.0.0.3:80")
	f.set(one, taskOf("2", "front", "10.0.0.2/24", "running", "running"))
	want("when the second runs and the third is gone", "http://10.0.0.1:80 http://10.0.0.2:80")
	kill := func(signal string) {
		f.events <- fmt.Sprintf(`{"Type":"container","Action":"kill","Actor":{"ID":"c1","Attributes":{"signal":%q}}}`,
			signal)
	}
	kill("15") // its stop signal is another one
	kill("3")
	want("at the first one's stop signal", "http://10.0.0.2:80")
	f.set(taskOf("2", "front", "10.0.0.2/24", "running", "shutdown"))
	want("when the swarm wants the second to end", "")
}

// TestAddressesOfTasks checks the addresses of servers on a node's network and behind the service's
// virtual address.
func TestAddressesOfTasks(t *testing.T) {
	f := &fakeSwarm{events: make(chan string)}
	host := taskOf("1", "host", "", "running", "running")
	f.set(host)
	followSwarm(t, f)("on the node's network", "http://192.0.2.2:80")
	f = &fakeSwarm{events: make(chan string), label: "traefik.docker.lbswarm"}
	f.set(taskOf("1", "front", "10.0.0.1/24", "running", "running"),
		taskOf("2", "front", "10.0.0.2/24", "running", "running"))
	followSwarm(t, f)("by the virtual address", "http://10.0.9.9:80")
}

// TestMissedEventsOfSwarm checks that the next subscription asks for the events since the last one.
func TestMissedEventsOfSwarm(t *testing.T) {
	f := &fakeSwarm{events: make(chan string), subscribed: make(chan string, 10)}
	f.set(taskOf("1", "front", "10.0.0.1/24", "running", "running"))
	want := followSwarm(t, f)
	want("at the start", "http://10.0.0.1:80")
	f.events <- eventAt(lastEvent*time.Second, "kill", "c1", "3")
	want("at its stop signal", "")
	close(f.events)
	want("after the stream has ended", "")
	first, second := <-f.subscribed, <-f.subscribed
	begun, last := fmt.Sprintf("%d.000000000", firstAnswer), fmt.Sprintf("%d.000000001", lastEvent)
	if first != begun || second != last {
		t.Errorf("events since %q and %q, want %s and %s", first, second, begun, last)
	}
}

// TestEventsDoNotDelayTasks checks that tasks are read while events follow each other in less time than
// passes from an event to the next question.
func TestEventsDoNotDelayTasks(t *testing.T) {
	f := &fakeSwarm{events: make(chan string)}
	s := newSwarmProvider(t, serve(t, f))
	s.interval = time.Hour
	until := followStates(t, s)
	until("at the start", "no service")
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	defer sending.Wait()
	defer cancel()
	sending.Go(func() {
		for tick := time.NewTicker(soonest / 4); ; {
			select {
			case <-tick.C:
				f.events <- `{"Type":"container","Action":"exec_start: true","Actor":{"ID":"other"}}`
			case <-ctx.Done():
				return
			}
		}
	})
	f.set(taskOf("1", "front", "10.0.0.1/24", "running", "running"))
	until("while events follow", "http://10.0.0.1:80")
}

// TestSwarmRefusesRequests checks that the tasks are served while the engine, or a proxy of its socket,
// refuses requests that are not needed for them, and that what was read before stays.
func TestSwarmRefusesRequests(t *testing.T) {
	const denied = "the engine answers 403 Forbidden: no right (since 2"
	f := &fakeSwarm{events: make(chan string)}
	web := taskOf("1", "front", "10.0.2.1/24", "running", "running")
	web["NetworksAttachments"] = append([]map[string]any{{"Network": map[string]any{"ID": "b",
		"Spec": map[string]any{"Name": "back"}}, "Addresses": []string{"10.0.1.1/24"}}},
		web["NetworksAttachments"].([]map[string]any)...)
	own := taskOf("gateway", "front", "10.0.2.9/24", "running", "running")
	own["ServiceID"] = "g"
	f.set(web, own)
	f.refuse("/containers/", "/nodes")
	s := newSwarmProvider(t, serve(t, f))
	s.self = self{ids: []string{"cgateway"}}
	until := followStates(t, s)
	without := "read the gateway's own container: " + denied
	until("without containers", "http://10.0.1.1:80", without)
	s2 := newSwarmProvider(t, serve(t, f))
	s2.self = self{ids: []string{"cgateway"}, addresses: map[string]string{"10.0.2.9": ""}}
	until2 := followStates(t, s2)
	until2("by the task's networks", "http://10.0.2.1:80")
	f.set(own, taskOf("2", "host", "", "running", "running"))
	until2("without nodes", "", "read nodes: "+denied)
	f.refuse()
	until2("with nodes", "http://192.0.2.2:80")
	f.refuse("/nodes", "/services")
	until2("without services", "http://192.0.2.2:80", "read services: "+denied, "the last answer stays in use")
	f.set(own, taskOf("3", "front", "10.0.2.3/24", "running", "running"))
	until2("new tasks without services", "http://10.0.2.3:80", "read services: "+denied)
	f.refuse("/tasks")
	until2("without tasks", "http://10.0.2.3:80", "read tasks: "+denied)
	f.set(own)
	f.refuse()
	until2("with tasks", "no service")
}

// TestEmptyServices checks that a service without a running task has routers if the settings ask for it.
func TestEmptyServices(t *testing.T) {
	followSwarm(t, &fakeSwarm{events: make(chan string)})("by default", "no service")
	f := &fakeSwarm{events: make(chan string)}
	s := newSwarmProvider(t, serve(t, f))
	s.options.AllowEmptyServices = true
	want := follow(t, s)
	want("without a task", "")
	f.set(taskOf("1", "front", "10.0.0.1/24", "running", "running"))
	want("with a task", "http://10.0.0.1:80")
	f.set()
	want("without a task again", "")
}

// TestNoManager checks that a node which is no manager leaves the last tasks as they are, with the
// engine's reason in the log.
func TestNoManager(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			w.(http.Flusher).Flush()
			return
		}
		http.Error(w, `{"message":"This node is not a swarm manager."}`, http.StatusServiceUnavailable)
	}))
	defer engine.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var log strings.Builder
	p, err := NewDocker(gateway.Docker{Endpoint: engine.URL, SwarmMode: true},
		slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
			cancel()
			return log.Write(b)
		}), nil)))
	if err != nil {
		t.Fatal(err)
	}
	p.Follow(ctx, func(gateway.Config, []traefik.Problem) { t.Error("the tasks have changed") })
	if !strings.Contains(log.String(), "not a swarm manager") {
		t.Errorf("the log has no reason: %s", log.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
