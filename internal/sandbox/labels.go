package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"
)

// Labelled is a container with the requested label.
type Labelled struct {
	ID, Name string
	Running  bool
	// Starting says that the container does not run, but may be about to start.
	Starting bool
	// HostNetwork says that it is in the host's network namespace.
	HostNetwork bool
	Labels      map[string]string
}

// Happened is an event of a container or network.
type Happened struct {
	// Action is create, start, die, destroy or connect.
	Action string
	Actor  Actor
}

// Actor is the container or network that an event is about, as the engine's API names it.
type Actor struct {
	ID         string
	Attributes map[string]string
}

// Engine is the path of the unix socket of a container engine.
type Engine string

// Docker returns the engine that DOCKER_HOST names if that is a unix socket, or
// else the engine at Docker's default socket.
func Docker() Engine {
	if path, ok := strings.CutPrefix(os.Getenv("DOCKER_HOST"), "unix://"); ok {
		return Engine(path)
	}
	return "/var/run/docker.sock"
}

// Watch returns a channel that receives a value whenever the engine may have
// started. See Finder.Watch.
func (e Engine) Watch(ctx context.Context) (<-chan struct{}, error) {
	return Finder{NetnsDir: "/run/netns", Engines: []string{string(e)}}.Watch(ctx)
}

// Labelled returns the containers with a label, running or not. If id is not
// empty, it returns only the container with that ID. It does not wait for a
// container that is being started.
func (e Engine) Labelled(ctx context.Context, label, id string) ([]Labelled, error) {
	filter := map[string][]string{"label": {label}}
	if id != "" {
		filter["id"] = []string{id}
	}
	var found []struct {
		containerJSON
		Labels map[string]string
	}
	if err := ask(ctx, string(e), "/containers/json?all=1&filters="+filters(filter), &found); err != nil {
		return nil, fmt.Errorf("ask the container engine at %s: %w", e, err)
	}
	var all []Labelled
	for _, c := range found {
		l := Labelled{ID: c.ID, Running: c.State == "running", Starting: c.State == "created" || c.State == "exited",
			HostNetwork: c.HostConfig.NetworkMode == "host", Labels: c.Labels}
		if len(c.Names) > 0 {
			l.Name = strings.TrimPrefix(c.Names[0], "/")
		}
		all = append(all, l)
	}
	return all, nil
}

// FollowLabelled calls notify for each event of containers with the label, until
// the engine or ctx ends, and then returns an error. It calls ready once, as soon as
// it receives events: from then on it misses none.
func (e Engine) FollowLabelled(ctx context.Context, label string, ready func(), notify func(Happened)) error {
	return e.follow(ctx, map[string][]string{"type": {"container"}, "label": {label},
		"event": {"create", "start", "die", "destroy"}}, ready, notify)
}

// follow is FollowLabelled for any filter.
func (e Engine) follow(ctx context.Context, filter map[string][]string, ready func(), notify func(Happened)) error {
	answer, err := get(ctx, string(e), eventsSince(time.Now(), filter))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return refusal(answer)
	}
	ready()
	for read := json.NewDecoder(answer.Body); ; {
		var h Happened
		if err := read.Decode(&h); err != nil {
			return err
		}
		notify(h)
	}
}

// CgroupOf returns the cgroup v2 of a running container's first process, as a
// path below the root of the hierarchy, e.g. /docker/4711. It returns ErrAbsent
// if the container does not run, and an error that wraps os.ErrNotExist if it was
// removed or has just ended. ErrNoEngine means that no engine answers.
func (e Engine) CgroupOf(ctx context.Context, id string) (string, error) {
	c, err := inspect(ctx, string(e), id)
	if err != nil {
		return "", fmt.Errorf("ask the container engine at %s: %w", e, err)
	}
	if c.State.Pid <= 0 {
		return "", ErrAbsent
	}
	lines, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.State.Pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(lines)) {
		if group, ok := strings.CutPrefix(line, "0::"); ok {
			return path.Clean(strings.TrimSuffix(group, "\n")), nil
		}
	}
	return "", fmt.Errorf("process %d is in no cgroup v2", c.State.Pid)
}

// restartLimit bounds the restart of a container: its stop may take as long as its stop timeout.
const restartLimit = 5 * time.Minute

// RestartByPolicy restarts a running container, as `docker restart` does, if the engine itself restarts it when it ends
// (its restart policy). It reports whether it has done so. If the engine's answer is lost, that is assumed.
func (e Engine) RestartByPolicy(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, restartLimit)
	defer cancel()
	var c struct {
		HostConfig struct{ RestartPolicy struct{ Name string } }
		State      struct{ Running bool }
	}
	if err := ask(ctx, string(e), "/containers/"+id+"/json", &c); err != nil {
		return false, fmt.Errorf("ask the container engine at %s: %w", e, err)
	}
	if policy := c.HostConfig.RestartPolicy.Name; !c.State.Running || policy == "" || policy == "no" {
		return false, nil
	}
	answer, err := request(ctx, http.MethodPost, string(e), "/containers/"+id+"/restart")
	if err != nil {
		var op *net.OpError
		unsent := errors.As(err, &op) && op.Op == "dial"
		return !unsent, fmt.Errorf("ask the container engine at %s: %w", e, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		return false, refusal(answer)
	}
	return true, nil
}

// eventsSince requests the events since the second of a time. That matters also if the time is now: an engine
// answers before it subscribes the client, so events in between would be missed. Some events are then about
// what the client has found already.
func eventsSince(at time.Time, filter map[string][]string) string {
	return fmt.Sprintf("/events?since=%d&filters=%s", at.Unix(), filters(filter))
}

// filters returns the value of the engine API's query parameter "filters".
func filters(by map[string][]string) string {
	text, _ := json.Marshal(by) // a map of strings cannot fail
	return url.QueryEscape(string(text))
}
