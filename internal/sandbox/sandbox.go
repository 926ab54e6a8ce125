// Package sandbox finds running sandboxes, the network namespaces that hold
// workloads, by what a user types, and tells when some may have come or gone.
// It attaches nothing and keeps nothing.
//
// A container is asked for at the API of its engine (Docker's, which podman
// speaks too), over the engine's unix socket: GET /containers/NAME/json says
// the process that holds the container's namespace.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind says by what a sandbox is known.
type Kind string

// The kinds, as they are written before the colon of a reference.
const (
	Container Kind = "container" // a container's name or id
	Netns     Kind = "netns"     // a name that `ip netns` lists
	Process   Kind = "pid"       // a process
	Path      Kind = "path"      // a file of a network namespace
)

// Kinds are all kinds.
var Kinds = []Kind{Container, Netns, Process, Path}

// Sandbox is a network namespace that holds a workload.
type Sandbox struct {
	// Ref is the canonical reference, e.g. container:web or pid:4711.
	Ref  string `json:"ref"`
	Kind Kind   `json:"kind"`
	// Name is what follows the kind in Ref.
	Name string `json:"name"`
	// Path leads to the namespace, e.g. /run/netns/web or /proc/4711/ns/net.
	Path string `json:"path"`
	// PID is the process that holds the namespace, 0 when none is known.
	PID int `json:"pid,omitempty"`
	// ID differs from that of every other sandbox since the machine was
	// booted: a name, a pid or an inode that is used again has another.
	ID string `json:"id"`
}

// Errors that callers decide on.
var (
	// ErrAbsent says for certain that nothing of the name runs now.
	ErrAbsent = errors.New("no such sandbox is running")
	// ErrHost says that the sandbox is the host's own namespace.
	ErrHost = errors.New("it is in the host's own network namespace")
)

// Finder looks for sandboxes. The zero value looks nowhere; New returns one
// that looks where a host has them.
type Finder struct {
	// NetnsDir holds the named namespaces.
	NetnsDir string
	// Engines are the unix sockets of container engines.
	Engines []string
	// noEngines says why containers cannot be asked for.
	noEngines error
}

// Resolve finds a sandbox where a host has them; see Finder.Resolve.
func Resolve(ctx context.Context, text string) (Sandbox, error) { return New().Resolve(ctx, text) }

// Resolve finds the sandbox that a user means: a pid, an absolute path, a
// name of `ip netns`, a container's name or id or the beginning of its id, or
// any of these with its kind before it (pid:4711). Errors wrap ErrAbsent or
// ErrHost where these are the reason.
func (f Finder) Resolve(ctx context.Context, text string) (Sandbox, error) {
	s, err := f.resolve(ctx, text)
	if err != nil {
		return Sandbox{}, fmt.Errorf("find sandbox %s: %w", text, err)
	}
	return s, nil
}

func (f Finder) resolve(ctx context.Context, text string) (Sandbox, error) {
	if kind, name, explicit := cutKind(text); explicit {
		found := f.find(ctx, kind, name)
		return only(found, text)
	}
	switch {
	case text == "":
		return Sandbox{}, errors.New("name a container, a pid, a network namespace of `ip netns`, or the path of one")
	case strings.HasPrefix(text, "/"):
		return only(f.find(ctx, Path, text), text)
	}
	_, isPID := asPID(text)
	var found []finding
	for _, kind := range []Kind{Process, Netns, Container} {
		if kind != Process || isPID {
			found = append(found, f.find(ctx, kind, text)...)
		}
	}
	// Who does not say that it is a container misses no engine, and a number is
	// a pid before it is the beginning of an id.
	found = slices.DeleteFunc(found, func(f finding) bool {
		return errors.Is(f.err, ErrNoEngine) || isPID && f.begun
	})
	return only(found, text)
}

// cutKind splits kind:name.
func cutKind(text string) (Kind, string, bool) {
	before, name, _ := strings.Cut(text, ":")
	for _, k := range Kinds {
		if string(k) == before && before != text {
			return k, name, true
		}
	}
	return "", text, false
}

// finding is what a place says of a name.
type finding struct {
	// is is what the name leads to; it has a Ref whenever something of the
	// name exists, running or not.
	is Sandbox
	// err is why it cannot be used, or why the place cannot be asked.
	err error
	// begun says that the name is but the beginning of a container's id.
	begun bool
}

func (f finding) exists() bool { return f.is.Ref != "" }

// only returns the one sandbox that was found.
func only(found []finding, text string) (Sandbox, error) {
	var exist []finding
	var refused []error
	for _, f := range found {
		switch {
		case !f.exists():
			refused = append(refused, f.err)
		case !known(exist, f):
			exist = append(exist, f)
		}
	}
	switch len(exist) {
	case 1:
		return exist[0].is, exist[0].err
	case 0:
		if len(refused) > 0 {
			return Sandbox{}, errors.Join(refused...)
		}
		if _, _, explicit := cutKind(text); explicit || strings.HasPrefix(text, "/") {
			return Sandbox{}, ErrAbsent
		}
		return Sandbox{}, fmt.Errorf("%w: neither a container nor a network namespace of `ip netns` nor a process has that name", ErrAbsent)
	}
	forms := make([]string, len(exist))
	for i, f := range exist {
		forms[i] = f.is.Ref
	}
	return Sandbox{}, fmt.Errorf("the name is ambiguous: say which of %s", strings.Join(forms, ", "))
}

// known reports whether the finding is one of the others by another name.
func known(others []finding, f finding) bool {
	for _, o := range others {
		if o.is.Ref == f.is.Ref || o.err == nil && f.err == nil && namespace(o.is) == namespace(f.is) {
			return true
		}
	}
	return false
}

// namespace is the part of the id that tells the namespace alone.
func namespace(s Sandbox) string {
	ns, _, _ := strings.Cut(s.ID, startMark)
	return ns
}
