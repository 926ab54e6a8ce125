package watched

import (
	"fairlead/internal/api"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Awaited returns the references of the sandboxes that attachments wait for. It locks
// the mutex of the state.
func (s *Sandboxes) Awaited() []string {
	s.state.Lock()
	defer s.state.Unlock()
	var refs []string
	seen := map[string]bool{}
	for _, a := range s.state.Desired().Attachments {
		if a.Sandbox == "" && a.HostInterface == "" && a.Network != api.HostNetwork && !seen[a.Ref] {
			seen[a.Ref] = true
			refs = append(refs, a.Ref)
		}
	}
	return refs
}

// Arrive fills in the values of an attachment that was created before its sandbox ran.
func (s *Sandboxes) Arrive(a *model.Attachment, at sandbox.Sandbox) {
	seen, err := s.host.DescribeSandbox(at.Path)
	if err != nil {
		return // settle reports the error
	}
	notes, err := spec.Arrive(s.state.Desired(), a, ContentsOf(at, seen))
	s.state.Warn("choose the default route of "+a.Name, err)
	for _, note := range notes {
		s.state.Log.Info("sandbox runs for the first time", "attachment", a.Name, "note", note)
	}
}

// Expect returns a sandbox that does not run. Either the text contains its kind, or it
// is the name of the sandbox of an attachment with Keep set. It locks the mutex of the
// state.
func (s *Sandboxes) Expect(text string) (sandbox.Sandbox, error) {
	at, err := sandbox.Expect(text)
	if err == nil {
		return at, nil
	}
	s.state.Lock()
	defer s.state.Unlock()
	for _, a := range s.state.Desired().Attachments {
		known, e := sandbox.Expect(a.Ref)
		if e == nil && a.Keep && known.Name == text {
			return known, nil
		}
	}
	return at, err
}
