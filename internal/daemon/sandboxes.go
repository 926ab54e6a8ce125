package daemon

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/daemon/external"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/sandbox"

	"golang.org/x/sys/unix"
)

// sandboxes watches the running sandboxes that are attached, and finds out which have
// ended.
type sandboxes struct {
	*state
	// watched has the running sandboxes that are attached, by their references.
	watched map[string]*watchedSandbox
	// external has the sandboxes of external endpoints.
	external *external.Table
	// suspects receives the references of sandboxes to check again.
	suspects chan string
}

func newSandboxes(s *state) *sandboxes {
	return &sandboxes{state: s, watched: map[string]*watchedSandbox{}, external: external.NewTable(s.life),
		suspects: make(chan string)}
}

// inspect returns the watchedSandbox of a sandbox, and its contents. at is where the
// sandbox was found.
func (s *sandboxes) inspect(at sandbox.Sandbox) (*watchedSandbox, inspect.Sandbox, error) {
	seen, err := s.cfg.Host.DescribeSandbox(at.Path)
	if err != nil {
		return nil, seen, err
	}
	if b := s.watched[at.Ref]; b != nil && b.namespace == seen.Namespace && b.path == at.Path {
		return b, seen, nil
	}
	b := &watchedSandbox{ref: at.Ref, path: at.Path, namespace: seen.Namespace, id: seen.ID}
	var st unix.Stat_t
	if err := unix.Stat(at.Path, &st); err != nil {
		return nil, seen, &os.PathError{Op: "stat", Path: at.Path, Err: err}
	}
	b.dev, b.ino = st.Dev, st.Ino
	return b, seen, nil
}

// watch starts to watch the sandbox, unless it is already watched.
func (s *sandboxes) watch(b *watchedSandbox, at sandbox.Sandbox) {
	if s.watched[b.ref] == b {
		return
	}
	if old := s.watched[b.ref]; old != nil {
		old.forget()
	}
	ctx, cancel := context.WithCancel(s.life)
	b.forget = cancel
	s.watched[b.ref] = b
	if at.PID == 0 {
		return
	}
	err := sandbox.WhenEnded(ctx, at.PID, func() {
		select {
		case s.suspects <- b.ref:
		case <-ctx.Done():
		}
	})
	if err != nil {
		s.cfg.Log.Error("watch a sandbox", "sandbox", b.ref, "error", err)
	}
}

// adopt watches the sandbox of an attachment of an earlier process, if the
// sandbox still exists.
func (s *sandboxes) adopt(a model.Attachment) {
	if s.watched[a.Ref] != nil {
		return
	}
	at := sandbox.Sandbox{Ref: a.Ref, Path: a.Sandbox}
	if _, err := fmt.Sscanf(a.Sandbox, "/proc/%d/ns/net", &at.PID); err != nil {
		at.PID = 0 // not a path of a process
	}
	b, seen, err := s.inspect(at)
	if err == nil && seen.Namespace == a.Namespace {
		s.watch(b, at)
	}
}

// inspectLocated adds the contents of the located sandboxes that run, and returns
// these. A sandbox that has ended meanwhile does not run.
func (s *sandboxes) inspectLocated(found []spec.Located) map[*watchedSandbox]sandbox.Sandbox {
	running := map[*watchedSandbox]sandbox.Sandbox{}
	for i, f := range found {
		if f.Err != nil || f.Path == "" {
			continue
		}
		b, seen, err := s.inspect(f.Sandbox.Sandbox)
		if err != nil {
			found[i].Path = ""
			continue
		}
		found[i].Sandbox = contentsOf(f.Sandbox.Sandbox, seen)
		running[b] = f.Sandbox.Sandbox
	}
	return running
}

// forgetUnused ends the watch of sandboxes without attachments.
func (s *sandboxes) forgetUnused() {
	attached := map[string]bool{}
	for _, a := range s.desired.Attachments {
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
	s.external.Keep(s.desired.Attachments)
}

// dead returns the references of the attached sandboxes that have ended.
func (s *sandboxes) dead(w model.Desired) map[string]bool {
	return s.deadAmong(w, func(*watchedSandbox) bool { return true })
}

// deadAmong does the same as dead, but checks only the sandboxes for which suspect
// returns true. Workloads and external endpoints are always checked.
func (s *sandboxes) deadAmong(w model.Desired, suspect func(*watchedSandbox) bool) map[string]bool {
	dead := map[string]bool{}
	inspected := map[string]bool{}
	var scan external.Scan
	for _, a := range w.Attachments {
		if external.CgroupGone(a) || external.Is(a) && s.external.State(a, &scan) == external.Dead {
			dead[a.Ref] = true
		}
		if a.Sandbox == "" || a.HostInterface != "" || inspected[a.Ref] {
			continue
		}
		inspected[a.Ref] = true
		b := s.watched[a.Ref]
		if b == nil || b.namespace != a.Namespace || suspect(b) && b.gone() {
			dead[a.Ref] = true
		}
	}
	return dead
}

// deadIn returns the sandboxes of the objects that have ended: the missing objects
// were removed with them.
func (s *sandboxes) deadIn(part plan.Plan) map[string]bool {
	paths := map[string]bool{}
	external := false
	for _, o := range part {
		if link, ok := o.(plan.Link); ok && link.Inside {
			external = true
		}
		for _, end := range append(plan.Ends(o), plan.Base(o)) {
			if i := strings.LastIndexByte(end, ' '); i > 0 {
				paths[end[:i]] = true
			}
		}
	}
	if len(paths) == 0 && !external {
		return nil
	}
	return s.deadAmong(s.desired, func(b *watchedSandbox) bool { return paths[b.path] })
}

// namespaces returns a function that returns the host's ID (nsid) of the namespace at
// a path.
func (s *sandboxes) namespaces() func(path string) int {
	ids := map[string]int{"": netns.NoID}
	for _, b := range s.watched {
		ids[b.path] = b.id
	}
	return func(path string) int {
		if id, known := ids[path]; known {
			return id
		}
		return math.MinInt // no message has this ID
	}
}

// recordExternal stores the namespaces of external endpoints that were seen with a
// process.
func (s *sandboxes) recordExternal() {
	next, changed := s.desired.Clone(), false
	var scan external.Scan
	for i, a := range next.Attachments {
		if !external.Is(a) || a.Sandbox == "" || a.Namespace != "" || !s.external.Seen(a, &scan) {
			continue
		}
		if id, err := netns.Identify(a.Sandbox); err == nil {
			next.Attachments[i].Namespace, changed = id, true
		}
	}
	if changed {
		s.warn("store the sandboxes of external endpoints", s.save(next))
	}
}

// awaited returns the references of the sandboxes that attachments wait for.
func (s *sandboxes) awaited() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var refs []string
	seen := map[string]bool{}
	for _, a := range s.desired.Attachments {
		if a.Sandbox == "" && a.HostInterface == "" && a.Network != api.HostNetwork && !seen[a.Ref] {
			seen[a.Ref] = true
			refs = append(refs, a.Ref)
		}
	}
	return refs
}

// arrive fills in the values of an attachment that was created before its sandbox ran.
func (s *sandboxes) arrive(a *model.Attachment, at sandbox.Sandbox) {
	seen, err := s.cfg.Counters.Inspect().DescribeSandbox(at.Path)
	if err != nil {
		return // settle reports the error
	}
	notes, err := spec.Arrive(s.desired, a, contentsOf(at, seen))
	s.warn("choose the default route of "+a.Name, err)
	for _, note := range notes {
		s.cfg.Log.Info("sandbox runs for the first time", "attachment", a.Name, "note", note)
	}
}

// expect returns a sandbox that does not run. Either the text contains its kind, or it
// is the name of the sandbox of an attachment with Keep set.
func (s *sandboxes) expect(text string) (sandbox.Sandbox, error) {
	at, err := sandbox.Expect(text)
	if err == nil {
		return at, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.desired.Attachments {
		known, e := sandbox.Expect(a.Ref)
		if e == nil && a.Keep && known.Name == text {
			return known, nil
		}
	}
	return at, err
}
