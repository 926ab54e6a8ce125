// Package planetest has the tests that every data plane passes. They change no host.
package planetest

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/balance"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/golden"
)

// Suite is what a data plane plans for services, and what it refuses.
type Suite struct {
	Plane balance.Plane
	// Base returns the service that all others change. It has at least two real servers.
	Base func() model.VirtualService
	// Attach returns the attachment of an endpoint.
	Attach func(endpoint string) plan.Attachment
	// Services are changes of the base. The plan of each is in the golden file of its name.
	Services map[string]func(*model.VirtualService)
	// Changes are in golden files, too.
	Changes  []Change
	Refusals []Refusal
	// Skeletons are texts that are the same in each plan, each followed by what the golden files have instead.
	Skeletons []string
}

// OnBridge returns the attachment of a sandbox on a bridge.
func OnBridge(string) plan.Attachment {
	return plan.Attachment{Link: "br0", Bypass: []plan.Bypass{
		plan.Within(netip.MustParsePrefix("172.30.0.0/24")), plan.Within(netip.MustParsePrefix("fd00:30::/64"))}}
}

// Change replaces one service of the suite by another one. An empty name is no service.
type Change struct{ Name, From, To string }

// Refusal is a change of the base to a service that the data plane refuses with an error that contains Want.
type Refusal struct {
	Want   string
	Change func(*model.VirtualService)
}

// Conform tests the data plane: each plan and each change is that of its golden file, the methods of the data plane
// are pure functions, the plan does not depend on the order of the real servers, and each refusal has its error.
func Conform(t *testing.T, s Suite) {
	for name := range s.Services {
		t.Run(name, func(t *testing.T) {
			v := s.service(name)
			p := s.planned(t, v)
			golden.Text(t, name, s.text(nil, p))
			if again := s.text(p, s.planned(t, v)); again != "" {
				t.Errorf("the second plan differs:\n%s", again)
			}
			slices.Reverse(v.Reals)
			if reversed := s.text(p, s.planned(t, v)); reversed != "" {
				t.Errorf("the plan depends on the order of the real servers:\n%s", reversed)
			}
		})
	}
	for _, c := range s.Changes {
		t.Run(c.Name, func(t *testing.T) {
			golden.Text(t, c.Name, s.text(s.named(t, c.From), s.named(t, c.To)))
		})
	}
	for _, r := range s.Refusals {
		t.Run(r.Want, func(t *testing.T) {
			v := s.Base()
			r.Change(&v)
			err := s.Plane.Validate(v, s.Sandboxes(v), plan.Facts{})
			if err == nil || !strings.Contains(err.Error(), r.Want) {
				t.Errorf("got %v, want an error with %q", err, r.Want)
			}
		})
	}
}

// service returns a service of the suite.
func (s Suite) service(name string) model.VirtualService {
	v := s.Base()
	s.Services[name](&v)
	return v
}

// named returns the plan of a service of the suite.
func (s Suite) named(t *testing.T, name string) plan.Plan {
	t.Helper()
	if name == "" {
		return nil
	}
	return s.planned(t, s.service(name))
}

// Sandboxes returns the attachments of the real servers that are endpoints.
func (s Suite) Sandboxes(v model.VirtualService) balance.Sandboxes {
	in := make(balance.Sandboxes, len(v.Reals))
	for i, r := range v.Reals {
		if r.Endpoint != "" {
			at := s.Attach(r.Endpoint)
			in[i] = &at
		}
	}
	return in
}

// planned returns the whole plan of a service.
func (s Suite) planned(t *testing.T, v model.VirtualService) plan.Plan {
	t.Helper()
	given, in := v.Clone(), s.Sandboxes(v)
	if err := s.Plane.Validate(v, in, plan.Facts{}); err != nil {
		t.Fatal(err)
	}
	p, err := plan.Merge(plan.NewPart(s.Plane.Shared(nil)), plan.NewPart(s.Plane.Service(v, in)))
	if err != nil {
		t.Fatal(err)
	}
	if !given.Equal(v) {
		t.Errorf("the data plane changes the service to %+v", v)
	}
	return p
}

// text returns what changes one plan into another one, without the skeletons.
func (s Suite) text(have, want plan.Plan) string {
	return strings.NewReplacer(s.Skeletons...).Replace(plan.Text(plan.Diff(have, want)))
}
