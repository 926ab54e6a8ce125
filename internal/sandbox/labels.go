package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"strings"
	"time"

	"fairlead/internal/dockerapi"
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
	filter := dockerapi.Filter{"label": {label}}
	if id != "" {
		filter["id"] = []string{id}
	}
	found, err := e.api().All(ctx, filter)
	if err != nil {
		return nil, e.failed(err)
	}
	var all []Labelled
	for _, c := range found {
		all = append(all, Labelled{ID: c.ID, Name: c.Name(), Running: c.State == "running",
			Starting:    c.State == "created" || c.State == "exited",
			HostNetwork: c.HostConfig.NetworkMode == "host", Labels: c.Labels})
	}
	return all, nil
}

func (e Engine) api() *dockerapi.Engine { return dockerapi.Unix(string(e)) }

// failed returns the error of a request.
func (e Engine) failed(err error) error {
	return fmt.Errorf("ask the container engine at %s: %w", e, ofEngine(err))
}

// FollowLabelled calls notify for each event of containers with the label, until
// the engine or ctx ends, and then returns an error. It calls ready once, as soon as
// it receives events: from then on it misses none.
func (e Engine) FollowLabelled(ctx context.Context, label string, ready func(), notify func(*dockerapi.Event)) error {
	return follow(ctx, e.api(), dockerapi.Filter{"type": {"container"}, "label": {label},
		"event": {"create", "start", "die", "destroy"}}, ready, notify)
}

// follow is FollowLabelled for any filter.
func follow(ctx context.Context, e *dockerapi.Engine, filter dockerapi.Filter, ready func(),
	notify func(*dockerapi.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := dockerapi.Subscription{Engine: e, Filter: filter, Since: dockerapi.ThisSecond(), Patient: true}
	stream, err := s.Open(ctx)
	if err != nil {
		return err
	}
	ready()
	for h := range stream.Events {
		notify(h)
	}
	return stream.Err()
}

// CgroupOf returns the cgroup v2 of a running container's first process, as a
// path below the root of the hierarchy, e.g. /docker/4711. It returns ErrAbsent
// if the container does not run, and an error that wraps os.ErrNotExist if it was
// removed or has just ended. ErrNoEngine means that no engine answers.
func (e Engine) CgroupOf(ctx context.Context, id string) (string, error) {
	c, err := e.api().Inspect(ctx, id)
	if err != nil {
		return "", e.failed(err)
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
	c, err := e.api().Inspect(ctx, id)
	if err != nil {
		return false, e.failed(err)
	}
	if policy := c.HostConfig.RestartPolicy.Name; !c.State.Running || policy == "" || policy == "no" {
		return false, nil
	}
	err = e.api().Post(ctx, "/containers/"+id+"/restart")
	var refused *dockerapi.Refusal
	var op *net.OpError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &refused):
		return false, err
	}
	unsent := errors.As(err, &op) && op.Op == "dial"
	return !unsent, e.failed(err)
}
