// Package watched has the running sandboxes that are attached: it watches their processes, identifies them by their
// namespaces, and finds out which have ended. It removes nothing that belonged to them.
package watched

import (
	"context"
	"fmt"
	"os"

	"fairlead/internal/daemon/external"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/daemon/state"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"

	"golang.org/x/sys/unix"
)

// Host reads the state of sandboxes. *kernel.Host implements it.
type Host interface {
	// DescribeSandbox reads the state of the sandbox at path, and makes sure that
	// the namespace has an id.
	DescribeSandbox(path string) (inspect.Sandbox, error)
}

// Sandboxes watches the running sandboxes that are attached, and finds out which have
// ended. Its methods expect that the mutex of the state is locked, unless they say something else.
type Sandboxes struct {
	state *state.State
	host  Host
	// External has the sandboxes of external endpoints.
	External *external.Table
	// Suspects receives the references of sandboxes to check again. It needs no lock.
	Suspects chan string
	// watched has the running sandboxes that are attached, by their references.
	watched map[string]*Sandbox
}

// New returns Sandboxes of which none is watched.
func New(s *state.State, h Host) *Sandboxes {
	return &Sandboxes{state: s, host: h, External: external.NewTable(s.Life), Suspects: make(chan string),
		watched: map[string]*Sandbox{}}
}

// Inspect returns a sandbox and its contents. at is where the sandbox was found.
func (s *Sandboxes) Inspect(at sandbox.Sandbox) (*Sandbox, inspect.Sandbox, error) {
	seen, err := s.host.DescribeSandbox(at.Path)
	if err != nil {
		return nil, seen, err
	}
	if b := s.watched[at.Ref]; b != nil && b.Namespace == seen.Namespace && b.Path == at.Path {
		return b, seen, nil
	}
	b := &Sandbox{Ref: at.Ref, Path: at.Path, Namespace: seen.Namespace, ID: seen.ID}
	var st unix.Stat_t
	if err := unix.Stat(at.Path, &st); err != nil {
		return nil, seen, &os.PathError{Op: "stat", Path: at.Path, Err: err}
	}
	b.dev, b.ino = st.Dev, st.Ino
	return b, seen, nil
}

// Watch starts to watch the sandbox, unless it is already watched.
func (s *Sandboxes) Watch(b *Sandbox, at sandbox.Sandbox) {
	if s.watched[b.Ref] == b {
		return
	}
	if old := s.watched[b.Ref]; old != nil {
		old.forget()
	}
	ctx, cancel := context.WithCancel(s.state.Life)
	b.forget = cancel
	s.watched[b.Ref] = b
	if at.PID == 0 {
		return
	}
	err := sandbox.WhenEnded(ctx, at.PID, func() {
		select {
		case s.Suspects <- b.Ref:
		case <-ctx.Done():
		}
	})
	if err != nil {
		s.state.Log.Error("watch a sandbox", "sandbox", b.Ref, "error", err)
	}
}

// Replaces reports whether another sandbox is watched under the sandbox's reference.
func (s *Sandboxes) Replaces(b *Sandbox) bool {
	old := s.watched[b.Ref]
	return old != nil && old != b
}

// Adopt watches the sandbox of an attachment of an earlier process, if the
// sandbox still exists.
func (s *Sandboxes) Adopt(a model.Attachment) {
	if s.watched[a.Ref] != nil {
		return
	}
	at := sandbox.Sandbox{Ref: a.Ref, Path: a.Sandbox}
	if _, err := fmt.Sscanf(a.Sandbox, "/proc/%d/ns/net", &at.PID); err != nil {
		at.PID = 0 // not a path of a process
	}
	b, seen, err := s.Inspect(at)
	if err == nil && seen.Namespace == a.Namespace {
		s.Watch(b, at)
	}
}

// InspectLocated adds the contents of the located sandboxes that run, and returns
// these. A sandbox that has ended meanwhile does not run.
func (s *Sandboxes) InspectLocated(found []spec.Located) map[*Sandbox]sandbox.Sandbox {
	running := map[*Sandbox]sandbox.Sandbox{}
	for i, f := range found {
		if f.Err != nil || f.Path == "" {
			continue
		}
		b, seen, err := s.Inspect(f.Sandbox.Sandbox)
		if err != nil {
			found[i].Path = ""
			continue
		}
		found[i].Sandbox = ContentsOf(f.Sandbox.Sandbox, seen)
		running[b] = f.Sandbox.Sandbox
	}
	return running
}

// ForgetUnused ends the watch of sandboxes without attachments.
func (s *Sandboxes) ForgetUnused() {
	attached := map[string]bool{}
	for _, a := range s.state.Desired().Attachments {
		if a.Sandbox != "" {
			attached[a.Ref] = true
		}
	}
	for ref, b := range s.watched {
		if !attached[ref] {
			b.forget()
			delete(s.watched, ref)
		}
	}
	s.External.Keep(s.state.Desired().Attachments)
}

// ContentsOf returns a sandbox with its contents.
func ContentsOf(at sandbox.Sandbox, seen inspect.Sandbox) spec.Sandbox {
	return spec.Sandbox{Sandbox: at, Namespace: seen.Namespace, Links: seen.Links, Default4: seen.Default4,
		Default6: seen.Default6}
}
