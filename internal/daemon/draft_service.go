package daemon

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/model"
)

// prunedServices takes away the services that the set declares no more.
func (t *draft) prunedServices() {
	w := &t.Daemon.desired
	w.Services = slices.DeleteFunc(slices.Clone(w.Services), func(v model.VirtualService) bool {
		return v.Origin == t.by && !slices.ContainsFunc(t.spec.Services, func(o model.VirtualService) bool { return o.Name == v.Name })
	})
}

// service brings one virtual service into the wishes.
func (t *draft) service(i int) {
	v, at := t.spec.Services[i], fmt.Sprintf("services[%d]", i)
	v.Origin = t.by
	if slices.ContainsFunc(t.spec.Services[:i], func(o model.VirtualService) bool { return o.Name == v.Name }) {
		t.mistake(at, fmt.Errorf("service %s is declared twice: leave one out", v.Name))
		return
	}
	if err := v.Validate(); err != nil {
		for _, one := range flat(err) {
			t.mistake(atReal(at, v, one.Error()), one)
		}
		return
	}
	delete(t.problems, serviceProblem(v.Name))
	have, known := t.Daemon.service(v.Name)
	if known && have.Origin != t.by {
		if v.Origin = have.Origin; !have.Equal(v) {
			t.mistake(at, theirs("service "+v.Name, have.Origin, "`fairlead service rm "+v.Name+"`"))
			return
		}
		t.left("service", v.Name, have.Origin)
		return
	}
	t.Daemon.desired.Services = putService(t.Daemon.desired.Services, v) // prunedServices has copied them
}

// blameService returns the part of the Spec that an error about a service tells
// of; empty if there is none.
func (t *draft) blameService(text string) string {
	for i, v := range t.spec.Services {
		if rest, begins := strings.CutPrefix(text, "service "+v.Name+": "); begins {
			return atReal(fmt.Sprintf("services[%d]", i), v, rest)
		}
	}
	return ""
}

// atReal narrows what is wrong with a service down to a real server of it, if
// the text begins with that.
func atReal(at string, v model.VirtualService, text string) string {
	for j, r := range slices.Backward(v.Reals) { // of two alike, the latter is wrong
		if strings.HasPrefix(text, "real server "+r.String()+": ") {
			return fmt.Sprintf("%s.reals[%d]", at, j)
		}
	}
	return at
}
