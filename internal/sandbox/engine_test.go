package sandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/dockerapi"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/sandbox"
)

// engine is a fake container engine. It implements the part of Docker's API that
// the package uses, at a unix socket.
type engine struct {
	t      *testing.T
	socket string
	server *httptest.Server
	mu     sync.Mutex
	// containers are by name. A request may also use the beginning of an ID.
	containers map[string]container
	events     map[chan string]bool
	// past are the events so far.
	past []string
	// answered, if not nil, is called between the answer to a request for events and the subscription.
	answered func()
	// ending refuses new followers of events while the engine stops.
	ending bool
	// broken is the error in every answer, if it is not empty.
	broken string
}

type container struct {
	id     string
	status string
	pid    int
}

func newEngine(t *testing.T, socket string) *engine {
	t.Helper()
	e := &engine{t: t, socket: socket, containers: map[string]container{}, events: map[chan string]bool{}}
	e.start()
	t.Cleanup(e.stop)
	return e
}

// socketPath is short enough for a unix socket, whatever the test's name.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "engine-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "docker.sock")
}

func (e *engine) start() {
	e.t.Helper()
	l, err := net.Listen("unix", e.socket)
	if err != nil {
		e.t.Fatal(err)
	}
	e.server = httptest.NewUnstartedServer(e)
	e.server.Listener.Close()
	e.server.Listener = l
	e.server.Start()
}

// stop ends the engine and removes its socket.
func (e *engine) stop() {
	e.mu.Lock()
	e.ending = true
	for c := range e.events {
		close(c)
	}
	clear(e.events)
	e.mu.Unlock()
	e.server.Close()
	e.mu.Lock()
	e.ending = false
	e.mu.Unlock()
}

func (e *engine) set(name string, c container) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.containers[name] = c
	e.past = append(e.past, c.status)
	for events := range e.events {
		events <- c.status
	}
}

// ServeHTTP answers as Docker does.
func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	broken := e.broken
	e.mu.Unlock()
	switch name, inspect := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/containers/"), "/json"); {
	case broken != "":
		http.Error(w, fmt.Sprintf(`{"message":%q}`, broken), http.StatusInternalServerError)
	case r.URL.Path == "/events":
		e.notify(w, r)
	case inspect:
		e.inspect(w, name)
	default:
		http.NotFound(w, r)
	}
}

func (e *engine) inspect(w http.ResponseWriter, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(e.containers)) {
		c := e.containers[name]
		if name != text && !strings.HasPrefix(c.id, text) {
			continue
		}
		answer := map[string]any{"Id": c.id, "Name": "/" + name,
			"State": map[string]any{"Status": c.status, "Pid": c.pid}}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			e.t.Error(err)
		}
		return
	}
	http.Error(w, `{"message":"No such container: `+text+`"}`, http.StatusNotFound)
}

func (e *engine) notify(w http.ResponseWriter, r *http.Request) {
	if filters := r.URL.Query().Get("filters"); !json.Valid([]byte(filters)) {
		e.t.Errorf("the filters of the events are %q, want JSON", filters)
	}
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	if e.answered != nil {
		e.answered()
	}
	events := make(chan string, 16)
	e.mu.Lock()
	ending := e.ending
	if !ending {
		e.events[events] = true
	}
	if r.URL.Query().Get("since") != "" {
		for _, status := range e.past {
			events <- status
		}
	}
	e.mu.Unlock()
	if ending {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			e.mu.Lock()
			delete(e.events, events)
			e.mu.Unlock()
			return
		case status, ok := <-events:
			if !ok {
				return
			}
			fmt.Fprintf(w, "{\"status\":%q}\n", status)
			_ = flush.Flush()
		}
	}
}

const webID = "9876543210fedcba0123456789abcdef0123456789abcdef0123456789abcdef"

func TestContainer(t *testing.T) {
	e := newEngine(t, socketPath(t))
	f := finder(t, e.socket)
	pid := workload(t, kerneltest.Netns(t)).Cmd.Process.Pid
	e.set("web", container{webID, "running", pid})
	w := want{"container:web", fmt.Sprintf("/proc/%d/ns/net", pid), pid}
	s := resolves(t, f, "web", w)
	for _, text := range []string{"container:web", webID, webID[:12], "container:9876", "9876543210fe"} {
		if by := resolves(t, f, text, w); by != s {
			t.Errorf("%s resolves to %+v, want %+v", text, by, s)
		}
	}
	// A number is a PID, even if an ID begins with it.
	refuses(t, f, "98765432", sandbox.ErrAbsent, "neither a container nor")

	// After a restart it is another sandbox with the same name.
	pid = workload(t, kerneltest.Netns(t)).Cmd.Process.Pid
	e.set("web", container{webID, "running", pid})
	if again := resolves(t, f, "web", want{"container:web", fmt.Sprintf("/proc/%d/ns/net", pid),
		pid}); again.ID == s.ID {
		t.Errorf("after a restart it has the same ID, %s", s.ID)
	}
}

func TestUnusableContainer(t *testing.T) {
	e := newEngine(t, socketPath(t))
	f := finder(t, e.socket)
	e.set("done", container{webID, "exited", 0})
	refuses(t, f, "done", sandbox.ErrAbsent, "the container is exited: start it first")
	e.set("dying", container{"fedc", "running", 999999999})
	refuses(t, f, "dying", sandbox.ErrAbsent, "the container is running: start it first")
	e.set("hosted", container{"ba98", "running", workload(t, nil).Cmd.Process.Pid})
	refuses(t, f, "container:hosted", sandbox.ErrHost, "publish its ports via socket")
	refuses(t, f, "container:web", sandbox.ErrAbsent, "no such sandbox")
	for _, text := range []string{"container:", "container:../images", "container:web/json?x=", "container:-web",
		"container:a b"} {
		refuses(t, f, text, sandbox.ErrAbsent, "no such sandbox")
	}
	e.broken = "internal error"
	refuses(t, f, "web", nil, "ask the container engine at "+e.socket+": internal error")
}

func TestAmbiguity(t *testing.T) {
	first, second := newEngine(t, socketPath(t)), newEngine(t, socketPath(t))
	f := finder(t, first.socket, second.socket)
	process := workload(t, kerneltest.Netns(t)).Cmd.Process.Pid
	first.set("web", container{webID, "running", process})
	named(t, f, "web")
	refuses(t, f, "web", nil, "the name is ambiguous: say which of netns:web, container:web")
	resolves(t, f, "netns:web", want{"netns:web", filepath.Join(f.NetnsDir, "web"), 0})
	w := want{"container:web", fmt.Sprintf("/proc/%d/ns/net", process), process}
	resolves(t, f, "container:web", w)

	// Two names of the same namespace are not ambiguous.
	unname(t, f, "web")
	bind(t, f, "web", w.path)
	resolves(t, f, "web", want{"netns:web", filepath.Join(f.NetnsDir, "web"), 0})
	unname(t, f, "web")

	// Two engines may have containers with the same name.
	second.set("web", container{"fedcba9876543210", "created", 0})
	refuses(t, f, "web", nil, "say which of container:"+webID[:12]+", container:fedcba987654")
	resolves(t, f, "container:"+webID[:12], w)

	first.set(fmt.Sprint(process), container{"ffff", "exited", 0})
	refuses(t, f, fmt.Sprint(process), nil, fmt.Sprintf("say which of pid:%d, container:%d", process, process))
}

// TestNoEngine: without a container engine, only a search for a container fails
// with ErrNoEngine, and that error is not ErrAbsent.
func TestNoEngine(t *testing.T) {
	f := finder(t, "/nowhere/docker.sock")
	refuses(t, f, "web", sandbox.ErrAbsent, "neither a container nor")
	refuses(t, f, "container:web", nil,
		"no container engine answers at /nowhere/docker.sock: start it, or name the sandbox in another form, e.g. pid:4711")

	e := newEngine(t, socketPath(t))
	e.server.Listener.(*net.UnixListener).SetUnlinkOnClose(false)
	e.server.Close()
	refuses(t, finder(t, e.socket), "container:web", nil, "no container engine answers")
}

func TestDockerHost(t *testing.T) {
	e := newEngine(t, socketPath(t))
	pid := workload(t, kerneltest.Netns(t)).Cmd.Process.Pid
	e.set("web-of-the-test", container{webID, "running", pid})
	t.Setenv("DOCKER_HOST", "unix://"+e.socket)
	resolves(t, sandbox.New(), "web-of-the-test",
		want{"container:web-of-the-test", fmt.Sprintf("/proc/%d/ns/net", pid), pid})
	t.Setenv("DOCKER_HOST", "tcp://192.0.2.1:2376")
	refuses(t, sandbox.New(), "container:web", nil,
		"DOCKER_HOST is tcp://192.0.2.1:2376, which is not a unix socket of an engine on this host")
}

// TestFollowMissesNothing starts a container when the engine has answered, and has not begun to send events.
func TestFollowMissesNothing(t *testing.T) {
	e := newEngine(t, socketPath(t))
	ready := make(chan struct{})
	e.answered = func() {
		<-ready
		e.set("web", container{webID, "running", 1})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	happened := false
	err := sandbox.Engine(e.socket).FollowLabelled(ctx, "label", func() { close(ready) }, func(*dockerapi.Event) {
		happened = true
		cancel()
	})
	if !happened {
		t.Errorf("the start of the container was missed: %v", err)
	}
}
