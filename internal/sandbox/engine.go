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

	"golang.org/x/sys/unix"
)

// patience bounds one question to a container engine.
const patience = 10 * time.Second

// New returns a finder that looks where this host has sandboxes: in
// /run/netns, and at the engine that DOCKER_HOST names, or else at Docker's
// and podman's own sockets.
func New() Finder {
	f := Finder{NetnsDir: "/run/netns"}
	host := os.Getenv("DOCKER_HOST")
	if host == "" {
		f.Engines = distinct("/var/run/docker.sock", "/run/podman/podman.sock")
	} else if path, ok := strings.CutPrefix(host, "unix://"); ok {
		f.Engines = []string{path}
	} else {
		f.noEngines = fmt.Errorf("DOCKER_HOST is %s, and only an engine of this host has sandboxes here: set it to unix://PATH", host)
	}
	return f
}

// distinct leaves out sockets that are others by another name, as the one
// that podman makes for Docker's clients.
func distinct(sockets ...string) []string {
	for i, s := range sockets {
		if real, err := filepath.EvalSymlinks(s); err == nil {
			sockets[i] = real
		}
	}
	slices.Sort(sockets)
	return slices.Compact(sockets)
}

// containerName is what engines take for a name; an id is one, too.
var containerName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// ErrNoEngine says that no engine is there. Whether a container runs, nobody
// can say then.
var ErrNoEngine = errors.New("no container engine answers")

// findContainer asks all engines. One that does not answer may have the
// container.
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
		return []finding{{err: fmt.Errorf("%w at %s: start it, or name the sandbox otherwise, e.g. pid:4711", ErrNoEngine, strings.Join(f.Engines, " or "))}}
	}
	return byID(found)
}

// byID writes containers of several engines that share a name by their ids.
func byID(found []finding) []finding {
	seen := map[string]int{}
	for _, f := range found {
		seen[f.is.Ref]++
	}
	for i := range found {
		if s := &found[i].is; s.Ref != "" && seen[s.Ref] > 1 {
			_, id, _ := strings.Cut(s.ID, containerMark)
			s.Ref = "container:" + id
		}
	}
	return found
}

// container is the part of an engine's answer that we need.
type container struct {
	ID    string `json:"Id"`
	Name  string
	State struct {
		Status string
		Pid    int
	}
}

// shortID is how many characters of an id engines print.
const shortID = 12

// containerMark stands in an id before that of the container.
const containerMark = startMark + "container:"

// find looks for the container's sandbox; asked is what it was asked for by.
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

// inspect asks an engine for a container. The error is os.ErrNotExist when
// there is no such container.
func inspect(ctx context.Context, socket, name string) (c container, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := get(ctx, socket, "/containers/"+name+"/json")
	if notThere(err) {
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

// notThere reports whether nobody listens at a socket, or there is none.
func notThere(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)
}

// refusal is an engine's answer that is none.
func refusal(answer *http.Response) error {
	var body struct{ Message string }
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if json.Unmarshal(text, &body) != nil || body.Message == "" {
		body.Message = answer.Status
	}
	return errors.New(body.Message)
}

// get asks the engine at a unix socket. The connection ends with the answer's
// body.
func get(ctx context.Context, socket, path string) (*http.Response, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine"+path, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(r)
}
