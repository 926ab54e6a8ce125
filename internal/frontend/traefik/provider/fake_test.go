package provider

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead/internal/dockerapi"
)

// fakeEngine answers like a container engine. A test uses it for orders of events that a
// real engine shows only by chance.
type fakeEngine struct {
	mu         sync.Mutex
	containers map[string]map[string]any
	events     chan string
	// missed is what the next subscription gets if it asks for the events since the last one, at
	// the time lastEvent, or since the engine's first answer.
	missed string
	// listed, if not nil, is called after the next list of containers.
	listed func()
	// faults are what happens to requests for containers, by ID: "hang", or the text of an error.
	faults map[string]string
}

// firstAnswer is the time of the engine's clock, lastEvent that of events, in seconds.
const (
	firstAnswer = 1699999999
	lastEvent   = 1700000000
)

func (f *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch path := strings.Split(r.URL.Path, "/"); {
	case r.URL.Path == "/events":
		since := r.URL.Query().Get("since")
		if since == "" {
			f.mu.Unlock()
			defer f.mu.Lock()
			answerFirst(w, r)
			return
		}
		if since == fmt.Sprintf("%d.000000001", lastEvent) ||
			since == fmt.Sprintf("%d.000000000", firstAnswer) {
			_, _ = io.WriteString(w, f.missed)
			f.missed = ""
		}
		w.(http.Flusher).Flush()
		var filters struct{ Type []string }
		_ = json.Unmarshal([]byte(r.URL.Query().Get("filters")), &filters)
		events := f.events
		f.mu.Unlock()
		defer f.mu.Lock()
		for {
			select {
			case e, ok := <-events:
				if !ok {
					return
				}
				var is dockerapi.Event
				if _ = json.Unmarshal([]byte(e), &is); slices.Contains(filters.Type, is.Type) {
					_, _ = io.WriteString(w, e)
					w.(http.Flusher).Flush()
				}
			case <-r.Context().Done():
				return
			}
		}
	case r.URL.Path == "/containers/json":
		var list []map[string]any
		for id, c := range f.containers {
			state := "exited"
			if c["State"].(map[string]any)["Running"] == true {
				state = "running"
			}
			list = append(list, map[string]any{"Id": id, "State": state, "Labels": f.labels(id)})
		}
		_ = json.NewEncoder(w).Encode(list)
		if listed := f.listed; listed != nil {
			f.listed = nil
			f.mu.Unlock()
			listed()
			f.mu.Lock()
		}
	case len(path) == 4 && f.faults[path[2]] == hang:
		f.mu.Unlock()
		defer f.mu.Lock()
		<-r.Context().Done()
	case len(path) == 4 && f.faults[path[2]] != "":
		http.Error(w, f.faults[path[2]], http.StatusInternalServerError)
	case len(path) == 4 && f.containers[path[2]] != nil:
		_ = json.NewEncoder(w).Encode(f.containers[path[2]])
	default:
		http.Error(w, "no such container", http.StatusNotFound)
	}
}

// answerFirst answers a request for events from now on, which the provider sends only to learn the engine's time.
func answerFirst(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Date", time.Unix(firstAnswer, 0).UTC().Format(http.TimeFormat))
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// fault sets what happens to requests for a container; "" means that they are answered.
func (f *fakeEngine) fault(id, what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[id] = what
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

// disable gives a container no router.
func (f *fakeEngine) disable(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.labels(id)["traefik.enable"] = "false"
}

// labels returns the labels of a container. The caller has locked mu.
func (f *fakeEngine) labels(id string) map[string]string {
	return f.containers[id]["Config"].(map[string]any)["Labels"].(map[string]string)
}

// allow keeps the routers of a container while it does not run.
func (f *fakeEngine) allow(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.labels(id)["traefik.docker.allownonrunning"] = "true"
}

// setStopped makes a container that does not run.
func (f *fakeEngine) setStopped(id string) {
	f.set(id, "", "", "")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.containers[id]["State"] = map[string]any{"Running": false}
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
	return &fakeEngine{faults: map[string]string{}, containers: map[string]map[string]any{}, events: make(chan string)}
}
