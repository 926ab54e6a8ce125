package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"fairlead/internal/dockerapi"
)

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
		c, err := dockerapi.Unix(socket).Inspect(ctx, name)
		switch {
		case dockerapi.NotRunning(err):
			missing++
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			found = append(found, finding{err: fmt.Errorf("ask the container engine at %s: %w", socket, err)})
		default:
			found = append(found, find(c, name))
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

// containerMark precedes the container's ID in Sandbox.ID.
const containerMark = startMark + "container:"

// find finds a container's sandbox. asked is the text that the user gave.
func find(c dockerapi.Inspected, asked string) finding {
	name := c.PlainName()
	var err error
	s := Sandbox{}
	if c.State.Pid > 0 {
		s, err = ofProcess(c.State.Pid)
	}
	if c.State.Pid <= 0 || errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: the container is %s: start it first", ErrAbsent, c.State.Status)
	}
	s.Ref, s.Kind, s.Name = "container:"+name, Container, name
	s.ID += containerMark + dockerapi.Short(c.ID)
	return finding{s, err, name != asked && len(asked) < dockerapi.ShortID}
}

// ofEngine returns ErrNoEngine if the error means that no engine runs, or else the error.
func ofEngine(err error) error {
	if dockerapi.NotRunning(err) {
		return ErrNoEngine
	}
	return err
}
