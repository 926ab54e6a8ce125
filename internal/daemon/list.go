package daemon

import (
	"fairlead/internal/api"
	"fairlead/internal/daemon/stored"
)

// Attachments returns all attachments, sorted by name.
func (d *Daemon) Attachments() []api.View { return d.views() }

// views returns the attachments with these names, or all if there are none.
func (d *Daemon) views(names ...string) []api.View {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.view(names...)
}

func (s *state) view(names ...string) []api.View {
	return stored.Applied(s.desired, s.full, s.problems, s.leases.Problem, names...)
}
