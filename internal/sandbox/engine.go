package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"fairlead/internal/lock"

	"golang.org/x/sys/unix"
)

// requestTimeout bounds one request to a container engine.
const requestTimeout = 10 * time.Second

// New returns a Finder for this host. It searches /run/netns and the engine
// that DOCKER_HOST names. If DOCKER_HOST is not set, it uses the default sockets
// of Docker and podman.
func New() Finder {
	f := Finder{NetnsDir: "/run/netns"}
	host := os.Getenv("DOCKER_HOST")
	if host == "" {
		f.Engines = distinct("/var/run/docker.sock", "/run/podman/podman.sock")
	} else if path, ok := strings.CutPrefix(host, "unix://"); ok {
		f.Engines = []string{path}
	} else {
		f.noEngines = fmt.Errorf(
			"DOCKER_HOST is %s, which is not a unix socket of an engine on this host: set it to unix://PATH", host)
	}
	return f
}

// distinct resolves symbolic links and removes duplicates, e.g. the link that
// podman creates for Docker's clients.
func distinct(sockets ...string) []string {
	for i, s := range sockets {
		if real, err := filepath.EvalSymlinks(s); err == nil {
			sockets[i] = real
		}
	}
	slices.Sort(sockets)
	return slices.Compact(sockets)
}

// containerName matches the names that engines accept. It also matches IDs.
var containerName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// ErrNoEngine is the error if no container engine runs. It is then unknown
// whether a container exists.
var ErrNoEngine = errors.New("no container engine answers")

// findContainer asks all engines. The result has an error for each engine that
// fails to answer, because that engine may have the container.
func (f Finder) findContainer(ctx context.Context, name string) []finding {
	if !containerName.MatchString(name) {
		return nil
	}
	var found []finding
	if f.noEngines != nil {
		found = append(found, finding{err: f.noEngines})
	}
	missing := 0
	for _, socket := range f.Engines {
		c, err := inspect(ctx, socket, name)
		switch {
		case errors.Is(err, ErrNoEngine):
			missing++
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			found = append(found, finding{err: fmt.Errorf("ask the container engine at %s: %w", socket, err)})
		default:
			found = append(found, c.find(name))
		}
	}
	if f.noEngines == nil && missing == len(f.Engines) {
		return []finding{{err: fmt.Errorf(
			"%w at %s: start it, or name the sandbox in another form, e.g. pid:4711", ErrNoEngine,
			strings.Join(f.Engines, " or "))}}
	}
	return refsByID(found)
}

// refsByID changes the references of containers of several engines that have
// the same name: they use the ID instead of the name.
func refsByID(found []finding) []finding {
	seen := map[string]int{}
	for _, f := range found {
		seen[f.sandbox.Ref]++
	}
	for i := range found {
		if s := &found[i].sandbox; s.Ref != "" && seen[s.Ref] > 1 {
			_, id, _ := strings.Cut(s.ID, containerMark)
			s.Ref = "container:" + id
		}
	}
	return found
}

// container is the part of an engine's answer that find needs.
type container struct {
	ID    string `json:"Id"`
	Name  string
	State struct {
		Status string
		Pid    int
	}
}

// shortID is how many characters of an ID engines print.
const shortID = 12

// containerMark precedes the container's ID in Sandbox.ID.
const containerMark = startMark + "container:"

// find finds the container's sandbox. asked is the text that the user gave.
func (c container) find(asked string) finding {
	name := strings.TrimPrefix(c.Name, "/")
	var err error
	s := Sandbox{}
	if c.State.Pid > 0 {
		s, err = ofProcess(c.State.Pid)
	}
	if c.State.Pid <= 0 || errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: the container is %s: start it first", ErrAbsent, c.State.Status)
	}
	s.Ref, s.Kind, s.Name = "container:"+name, Container, name
	s.ID += containerMark + c.ID[:min(shortID, len(c.ID))]
	return finding{s, err, name != asked && len(asked) < shortID}
}

// inspect asks an engine for a container. It returns os.ErrNotExist if the
// engine has no such container, and ErrNoEngine if no engine runs.
func inspect(ctx context.Context, socket, name string) (c container, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := get(ctx, socket, "/containers/"+name+"/json")
	if notRunning(err) {
		return c, ErrNoEngine
	}
	if err != nil {
		return c, err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return c, os.ErrNotExist
	default:
		return c, refusal(answer)
	}
	if err := json.NewDecoder(answer.Body).Decode(&c); err != nil {
		return c, fmt.Errorf("read its answer: %w", err)
	}
	return c, nil
}

// notRunning reports whether the error means that the socket does not exist or
// that no process listens on it.
func notRunning(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)
}

// refusal returns the error in an engine's answer.
func refusal(answer *http.Response) error {
	var body struct{ Message string }
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if json.Unmarshal(text, &body) != nil || body.Message == "" {
		body.Message = answer.Status
	}
	return errors.New(body.Message)
}

// get sends a request to the engine at a unix socket. Closing the answer's body
// closes the connection. Returns errAnswering with a context of Answering.
func get(ctx context.Context, socket, path string) (*http.Response, error) {
	return request(ctx, http.MethodGet, socket, path)
}

// request is get with any method of HTTP.
func request(ctx context.Context, method, socket, path string) (*http.Response, error) {
	if isAnswering(ctx) {
		return nil, errAnswering
	}
	lock.Outside("a container engine")
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(r)
}
