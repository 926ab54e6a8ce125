package daemon

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/model"
)

// pruneServices removes the services that the set no longer declares.
func (t *draft) pruneServices() {
	w := &t.Daemon.desired
	w.Services = slices.DeleteFunc(slices.Clone(w.Services), func(v model.VirtualService) bool {
		return v.Origin == t.origin && !slices.ContainsFunc(t.spec.Services, func(o model.VirtualService) bool { return o.Name == v.Name })
	})
}

// service adds one virtual service to the draft.
func (t *draft) service(i int) {
	v, at := t.spec.Services[i], fmt.Sprintf("services[%d]", i)
	v.Origin = t.origin
	if slices.ContainsFunc(t.spec.Services[:i], func(o model.VirtualService) bool { return o.Name == v.Name }) {
		t.mistake(at, fmt.Errorf("service %s is declared twice: remove one", v.Name))
		return
	}
	if err := v.Validate(); err != nil {
		for _, one := range flatten(err) {
			t.mistake(atReal(at, v, one.Error()), one)
		}
		return
	}
	delete(t.problems, serviceProblem(v.Name))
	have, known := t.Daemon.desired.Service(v.Name)
	if known && have.Origin != t.origin {
		if v.Origin = have.Origin; !have.Equal(v) {
			t.mistake(at, differsFromFile("service "+v.Name, have.Origin, "`fairlead service rm "+v.Name+"`"))
			return
		}
		t.noteUnchanged("service", v.Name, have.Origin)
		return
	}
	t.Daemon.desired.Services = putService(t.Daemon.desired.Services, v) // pruneServices has copied them
}

// servicePart returns the part of the Spec that an error about a service is about. It
// is empty if there is none.
func (t *draft) servicePart(text string) string {
	for i, v := range t.spec.Services {
		if rest, begins := strings.CutPrefix(text, "service "+v.Name+": "); begins {
			return atReal(fmt.Sprintf("services[%d]", i), v, rest)
		}
	}
	return ""
}

// atReal narrows the part of the Spec to a real server of the service, if the text
// begins with its name.
func atReal(at string, v model.VirtualService, text string) string {
	for j, r := range slices.Backward(v.Reals) { // of two equal ones, the later is the mistake
		if strings.HasPrefix(text, "real server "+r.String()+": ") {
			return fmt.Sprintf("%s.reals[%d]", at, j)
		}
	}
	return at
}
