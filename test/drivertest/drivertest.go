// Package drivertest has the tests that every driver passes. They change no host.
package drivertest

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/driver"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/golden"
)

// Suite is what a driver plans and what it refuses.
type Suite struct {
	Driver driver.Driver
	// Facts are those of the host, unless a refusal has its own.
	Facts    plan.Facts
	Plans    []Plan
	Refusals []Refusal
	// Unpublished means that ports of the endpoints cannot be published.
	Unpublished bool
}

// Plan is a network with endpoints. Its plan is in the golden file of that name.
type Plan struct {
	Name      string
	Network   model.Network
	Endpoints []model.Endpoint
}

// Refusal is a network that the driver refuses with an error that contains each text in Want.
type Refusal struct {
	Name    string
	Network model.Network
	Facts   plan.Facts
	Want    []string
}

// Conform tests the driver: each plan is that of its golden file, the driver's methods are pure functions, and each
// refusal has its error. The networks get the name net and the driver.
func Conform(t *testing.T, s Suite) {
	for _, c := range s.Plans {
		t.Run(c.Name, func(t *testing.T) {
			n := named(c.Network, s.Driver)
			if err := s.Driver.Validate(n, s.Facts); err != nil {
				t.Fatal(err)
			}
			given := model.State{Networks: []model.Network{n}}.Clone().Networks[0]
			full := s.Driver.Complete(n, s.Facts)
			if !given.Equal(n) {
				t.Errorf("Complete changes its argument to %+v", n)
			}
			if again := s.Driver.Complete(full, s.Facts); !again.Equal(full) {
				t.Errorf("a complete network becomes %+v, not %+v", again, full)
			}
			text := s.planned(t, full, c.Endpoints)
			golden.Text(t, c.Name, text)
			if again := s.planned(t, full, c.Endpoints); again != text {
				t.Errorf("the second plan differs:\n%s", again)
			}
			for _, e := range c.Endpoints {
				s.attaches(t, full, e)
			}
		})
	}
	for _, c := range s.Refusals {
		t.Run(c.Name, func(t *testing.T) {
			facts := s.Facts
			if !reflect.ValueOf(c.Facts).IsZero() {
				facts = c.Facts
			}
			err := s.Driver.Validate(named(c.Network, s.Driver), facts)
			for _, want := range c.Want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want an error with %q", err, want)
				}
			}
		})
	}
}

func named(n model.Network, d driver.Driver) model.Network {
	n.Name, n.Driver = "net", d.Name()
	return n
}

// planned returns the plan of a network and its endpoints as text.
func (s Suite) planned(t *testing.T, n model.Network, endpoints []model.Endpoint) string {
	t.Helper()
	all := s.Driver.Network(n, s.Facts)
	parts := []plan.Part{plan.NewPart(all)}
	for _, e := range endpoints {
		own := s.Driver.Endpoint(n, e)
		all, parts = append(all, own...), append(parts, plan.NewPart(own))
	}
	if _, err := plan.Merge(parts...); err != nil {
		t.Error(err)
	}
	seen := map[string]bool{}
	return golden.Session(slices.DeleteFunc(all, func(o plan.Object) bool {
		was := seen[o.Key()]
		seen[o.Key()] = true
		return was
	}))
}

// attaches checks the attachment of an endpoint.
func (s Suite) attaches(t *testing.T, n model.Network, e model.Endpoint) {
	t.Helper()
	at := s.Driver.Attachment(n, e)
	if again := s.Driver.Attachment(n, e); !reflect.DeepEqual(at, again) {
		t.Errorf("the second attachment of %s is %+v, not %+v", e.Name, again, at)
	}
	if s.Unpublished && at.Link != "" {
		t.Errorf("the attachment of %s has a link: %+v", e.Name, at)
	}
	if at.Link != "" && at.Closed != "" {
		t.Errorf("the attachment of %s has a link, and is closed: %+v", e.Name, at)
	}
	if unknown := slices.DeleteFunc(slices.Clone(at.Addresses), func(a netip.Addr) bool {
		return slices.Contains(e.Addresses, a) ||
			slices.ContainsFunc(e.Prefixes, func(p netip.Prefix) bool { return p.Addr() == a })
	}); len(unknown) > 0 {
		t.Errorf("%s does not have the addresses %v of its attachment", e.Name, unknown)
	}
}
