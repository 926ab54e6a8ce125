// Package state has what all parts of the daemon share: the desired state, the applied state and the problems of
// objects, with the mutex that protects them. It decides nothing and applies nothing.
package state

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"

	"fairlead/internal/alarm"
	"fairlead/internal/daemon/journal"
	"fairlead/internal/lock"
	"fairlead/internal/model"
)

// Store saves the desired state. *store.File implements it.
type Store interface {
	SaveDesired(model.Desired) error
}

// State is what all parts of a daemon share. Its mutex also protects the fields of the parts. It is held while the
// engine applies a step; its holder waits for no other process, network or slow disk (package lock). The methods
// expect that it is locked, except those of the mutex and of the journal, Changed and Warn.
type State struct {
	lock.Mutex
	// Problems has the reason why an attachment, publish, network or service is not applied, by the attachment's
	// name, the publish's text, OfNetwork or OfService. Each part records what it finds.
	Problems map[string]string
	// Reapplied receives a value when the applied objects may have changed. It needs no lock.
	Reapplied alarm.Signal
	// The journal, Life, which ends with the daemon, and Log need no lock.
	*journal.Journal
	Life context.Context
	Log  *slog.Logger

	store   Store
	changed func()
	desired model.Desired
	applied model.State
	// known are the problems at the begin of the step, or after the last state that it has applied.
	known map[string]string
}

// Config contains what a State needs.
type Config struct {
	Store Store
	Log   *slog.Logger
	Life  context.Context
	// Changed is called whenever the daemon's state has changed; it may be nil.
	Changed func()
}

// New returns a State in which nothing is desired.
func New(cfg Config) *State {
	return &State{Problems: map[string]string{}, Reapplied: alarm.NewSignal(), Life: cfg.Life, Log: cfg.Log,
		Journal: journal.New(cfg.Log), store: cfg.Store, changed: cfg.Changed}
}

// OfNetwork returns the key of a network's problem.
func OfNetwork(name string) string { return "network " + name }

// OfService returns the key of a service's problem.
func OfService(name string) string { return "service " + name }

// Desired returns the desired state. The caller must not change what it refers to.
func (s *State) Desired() model.Desired { return s.desired }

// Save stores a desired state, which replaces the present one.
func (s *State) Save(next model.Desired) error {
	if err := s.store.SaveDesired(next); err != nil {
		return fmt.Errorf("write desired state: %w", err)
	}
	s.desired = next
	return nil
}

// Assume replaces the desired state without storing it: it is stored already, or the caller saves what it makes of it.
func (s *State) Assume(w model.Desired) { s.desired = w }

// Applied returns the state that the engine has applied, with leased addresses and the publish modes that it chose.
// The caller must not change what it refers to.
func (s *State) Applied() model.State { return s.applied }

// SetApplied records the state that the engine has applied.
func (s *State) SetApplied(full model.State) {
	s.applied = full
	s.Reapplied.Send()
}

// Fail records why an object is not applied, and logs it. key is as in Problems.
func (s *State) Fail(key string, err error) {
	s.Problems[key] = err.Error()
	s.Log.Error("apply", "object", key, "error", err)
}

// MarkProblems records the present problems for KeepProblems.
func (s *State) MarkProblems() { s.known = maps.Clone(s.Problems) }

// KeepProblems restores the problems that a failed state has deleted: what they are about is not applied. Without them,
// no state with these objects could be applied.
func (s *State) KeepProblems() {
	for name, why := range s.known {
		s.Problems[name] = cmp.Or(s.Problems[name], why)
	}
}

// Changed reports that the daemon's state has changed.
func (s *State) Changed() {
	s.Count()
	if s.changed != nil {
		s.changed()
	}
}

// Warn logs an error, if there is one.
func (s *State) Warn(what string, err error) {
	if err != nil {
		s.Log.Warn(what, "error", err)
	}
}
