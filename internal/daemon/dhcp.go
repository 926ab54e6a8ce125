package daemon

import (
	"context"

	"fairlead/internal/api"
	"fairlead/internal/daemon/leases"
	"fairlead/internal/model"
)

// newLeases returns the DHCP clients of attachments, which apply their leases.
func newLeases(ap *applier) *leases.Clients {
	return leases.New(leases.Config{Run: ap.cfg.DHCP, Log: ap.cfg.Log, Apply: ap.applyLease, Changed: ap.changed})
}

// startLeasing starts the DHCP clients that do not run.
func (s *state) startLeasing() {
	for _, a := range s.desired.Attachments {
		if !a.DHCP || a.Sandbox == "" || s.problems[a.Name] != "" {
			continue
		}
		id := ""
		if n, _ := (model.State{Networks: s.desired.Networks}).Network(a.Network); n.Traits().ParentMAC {
			id = a.Name // its links share a MAC address
		}
		s.leases.Start(a, id)
	}
}

// applyLease implements leases.Config.Apply.
func (ap *applier) applyLease(name string, l model.Lease, current func() bool) error {
	err := ap.step(ap.life, func() error {
		a, ok := ap.desired.Attachment(name)
		if !ok || !current() || a.Lease.Equal(l) {
			return nil
		}
		before := a.Lease
		a.Lease = l
		if before.Ends = l.Ends; before.Equal(l) { // it is renewed, and the host has it
			return ap.save(ap.desired.WithAttachment(a))
		}
		err := ap.settle(ap.desired.WithAttachment(a))
		if err == nil {
			ap.cfg.Log.Info("lease", "attachment", name, "addresses", l.Prefixes)
		}
		return err
	})
	if err != nil {
		ap.cfg.Log.Error("apply lease", "attachment", name, "error", err)
	}
	return err
}

// awaitLease starts the DHCP client of an attachment, if it does not run, and waits for its first lease. It locks mu.
func (s *state) awaitLease(ctx context.Context, name string) error {
	s.mu.Lock()
	s.startLeasing()
	s.mu.Unlock()
	if err := s.leases.Await(ctx, name); err != nil {
		return &api.Fault{Code: api.Failed, Err: err}
	}
	return nil
}

// releasing repeats a step while DHCP clients that it has stopped release their leases, and starts them again if the
// step fails. It locks mu.
func (s *state) releasing(step func() error) error {
	err := s.leases.Repeat(step)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.startLeasing()
	}
	return err
}

// stopDead ends the DHCP clients of sandboxes that have ended.
func (s *state) stopDead(dead map[string]bool) {
	for _, a := range s.desired.Attachments {
		if dead[a.Ref] {
			s.leases.Drop(a.Name)
		}
	}
}
