package engine

import (
	"reflect"
	"slices"

	"fairlead/internal/model"
)

// UnsuitableError is the reason why a network cannot exist on this host in its
// current state.
type UnsuitableError struct {
	Network string
	Err     error
}

// Error implements error.
func (e *UnsuitableError) Error() string { return "network " + e.Network + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *UnsuitableError) Unwrap() error { return e.Err }

// Unfit returns the networks of the state that cannot exist on this host now, by
// name, each with the reason.
func (e *Engine) Unfit(s model.State) (map[string]error, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := compile(s)
	facts, err := e.facts(g)
	if err != nil {
		return nil, err
	}
	return UnfitNetworks(g.supported(facts)), nil
}

// UnfitNetworks returns the networks that an error of the engine names. It finds
// all UnsuitableErrors in err.
func UnfitNetworks(err error) map[string]error {
	found := map[string]error{}
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) {
		case *UnsuitableError:
			found[e.Network] = e
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				walk(err)
			}
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		}
	}
	walk(err)
	return found
}

// FactsChanged reports whether the host's links, firewalls, IPsec policies or routers have changed
// since the state's networks were last planned.
func (e *Engine) FactsChanged(s model.State) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	facts, err := e.facts(compile(s))
	if err != nil {
		return false, err
	}
	routers, err := e.routersChanged()
	return routers || !reflect.DeepEqual(facts.Links, e.planned.links) ||
		!slices.Equal(facts.Firewalls, e.planned.firewalls) || !slices.Equal(facts.IPsec, e.planned.ipsec), err
}
