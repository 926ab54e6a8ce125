package watched

import (
	"math"
	"strings"

	"fairlead/internal/daemon/external"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Dead returns the references of the attached sandboxes that have ended.
func (s *Sandboxes) Dead(w model.Desired) map[string]bool {
	return s.DeadAmong(w, func(*Sandbox) bool { return true })
}

// DeadAmong does the same as Dead, but checks only the sandboxes for which suspect
// returns true. Workloads and external endpoints are always checked.
func (s *Sandboxes) DeadAmong(w model.Desired, suspect func(*Sandbox) bool) map[string]bool {
	dead := map[string]bool{}
	inspected := map[string]bool{}
	var scan external.Scan
	for _, a := range w.Attachments {
		if external.CgroupGone(a) || external.Is(a) && s.External.State(a, &scan) == external.Dead {
			dead[a.Ref] = true
		}
		if a.Sandbox == "" || a.HostInterface != "" || inspected[a.Ref] {
			continue
		}
		inspected[a.Ref] = true
		b := s.watched[a.Ref]
		if b == nil || b.Namespace != a.Namespace || suspect(b) && b.gone() {
			dead[a.Ref] = true
		}
	}
	return dead
}

// DeadIn returns the sandboxes of the objects that have ended: the missing objects
// were removed with them.
func (s *Sandboxes) DeadIn(part plan.Plan) map[string]bool {
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
	return s.DeadAmong(s.state.Desired(), func(b *Sandbox) bool { return paths[b.Path] })
}

// Namespaces returns a function that returns the host's ID (nsid) of the namespace at
// a path.
func (s *Sandboxes) Namespaces() func(path string) int {
	ids := map[string]int{"": netns.NoID}
	for _, b := range s.watched {
		ids[b.Path] = b.ID
	}
	return func(path string) int {
		if id, known := ids[path]; known {
			return id
		}
		return math.MinInt // no message has this ID
	}
}

// RecordExternal stores the namespaces of external endpoints that were seen with a
// process.
func (s *Sandboxes) RecordExternal() {
	next, changed := s.state.Desired().Clone(), false
	var scan external.Scan
	for i, a := range next.Attachments {
		if !external.Is(a) || a.Sandbox == "" || a.Namespace != "" || !s.External.Seen(a, &scan) {
			continue
		}
		if id, err := netns.Identify(a.Sandbox); err == nil {
			next.Attachments[i].Namespace, changed = id, true
		}
	}
	if changed {
		s.state.Warn("store the sandboxes of external endpoints", s.state.Save(next))
	}
}
