// Package sandbox finds running sandboxes (network namespaces with workloads) by
// the text that a user types, and reports when a sandbox may have started or
// ended. It does not attach sandboxes and stores nothing.
//
// To find a container, the package uses the API of its engine (Docker's API,
// which podman also implements) over the engine's unix socket: the answer of GET
// /containers/NAME/json contains a process in the container's namespace.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind is the kind of a sandbox's reference.
type Kind string

// The kinds, as written before the colon of a reference.
const (
	Container Kind = "container" // a container's name or id
	Netns     Kind = "netns"     // a name that `ip netns` lists
	Process   Kind = "pid"       // a process
	Path      Kind = "path"      // a file of a network namespace
)

// Kinds are all kinds.
var Kinds = []Kind{Container, Netns, Process, Path}

// Sandbox is a network namespace with the processes in it.
type Sandbox struct {
	// Ref is the canonical reference, e.g. container:web or pid:4711.
	Ref  string `json:"ref"`
	Kind Kind   `json:"kind"`
	// Name is what follows the kind in Ref.
	Name string `json:"name"`
	// Path is a file of the namespace, e.g. /run/netns/web or /proc/4711/ns/net.
	Path string `json:"path"`
	// PID is a process in the namespace, or 0 if none is known.
	PID int `json:"pid,omitempty"`
	// ID is unique among all sandboxes since the machine was booted, even if a
	// name, a PID or an inode is used again.
	ID string `json:"id"`
}

// Errors that callers may act on.
var (
	// ErrAbsent means that there is certainly no running sandbox with the name.
	ErrAbsent = errors.New("no such sandbox is running")
	// ErrHost means that the sandbox is the host's network namespace.
	ErrHost = errors.New("it is in the host's own network namespace")
)

// Finder finds sandboxes. New returns a Finder for this host. The methods may be
// called concurrently.
type Finder struct {
	// NetnsDir is the directory of the named namespaces.
	NetnsDir string
	// Engines are the unix sockets of container engines.
	Engines []string
	// noEngines is why containers cannot be found; nil if they can.
	noEngines error
}

// Resolve finds a sandbox of this host; see Finder.Resolve.
func Resolve(ctx context.Context, text string) (Sandbox, error) { return New().Resolve(ctx, text) }

// Resolve finds the sandbox that the text names: a PID, an absolute path, a name
// of `ip netns`, a container's name, its ID or the beginning of its ID, or any of
// these after its kind (pid:4711). It returns an error that wraps ErrAbsent if
// there is no such sandbox, and ErrHost if it is the host's network namespace.
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
	// Without the kind "container", a missing engine is no error. A number is a
	// PID rather than the beginning of a container's ID.
	found = slices.DeleteFunc(found, func(f finding) bool {
		return errors.Is(f.err, ErrNoEngine) || isPID && f.isPrefix
	})
	return only(found, text)
}

// cutKind splits "kind:name". explicit reports whether the text has a kind.
func cutKind(text string) (kind Kind, name string, explicit bool) {
	before, name, _ := strings.Cut(text, ":")
	for _, k := range Kinds {
		if string(k) == before && before != text {
			return k, name, true
		}
	}
	return "", text, false
}

// finding is the result of one search for a name.
type finding struct {
	// sandbox is the result. Its Ref is set if the name exists, even if it does
	// not run.
	sandbox Sandbox
	// err is why the sandbox cannot be used, or why the search failed.
	err error
	// isPrefix says that the name is only the beginning of a container's ID.
	isPrefix bool
}

func (f finding) exists() bool { return f.sandbox.Ref != "" }

// only returns the one sandbox that was found, or an error if there is none or
// more than one.
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
		return exist[0].sandbox, exist[0].err
	case 0:
		if len(refused) > 0 {
			return Sandbox{}, errors.Join(refused...)
		}
		if _, _, explicit := cutKind(text); explicit || strings.HasPrefix(text, "/") {
			return Sandbox{}, ErrAbsent
		}
		return Sandbox{}, fmt.Errorf("%w: neither a container nor a network namespace of `ip netns` nor a process has that name",
			ErrAbsent)
	}
	forms := make([]string, len(exist))
	for i, f := range exist {
		forms[i] = f.sandbox.Ref
	}
	return Sandbox{}, fmt.Errorf("the name is ambiguous: say which of %s", strings.Join(forms, ", "))
}

// known reports whether the finding is the same sandbox as one of the others.
func known(others []finding, f finding) bool {
	for _, o := range others {
		if o.sandbox.Ref == f.sandbox.Ref || o.err == nil && f.err == nil &&
			namespace(o.sandbox) == namespace(f.sandbox) {
			return true
		}
	}
	return false
}

// namespace returns the part of the ID that identifies the namespace.
func namespace(s Sandbox) string {
	ns, _, _ := strings.Cut(s.ID, startMark)
	return ns
}
