package spec

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/model"
)

// pruneServices removes the services that the set no longer declares.
func (t *Draft) pruneServices() {
	w := &t.desired
	w.Services = slices.DeleteFunc(slices.Clone(w.Services), func(v model.VirtualService) bool {
		return t.declaredBefore(v.Origin, edited(t.spec.Edit).service, v.Name) && !slices.ContainsFunc(t.spec.Services,
			func(o model.VirtualService) bool { return o.Name == v.Name })
	})
}

// service adds one virtual service to the draft.
func (t *Draft) service(i int) {
	v, at := t.spec.Services[i], fmt.Sprintf("services[%d]", i)
	v.Origin = t.origin
	if slices.ContainsFunc(t.spec.Services[:i], func(o model.VirtualService) bool { return o.Name == v.Name }) {
		t.mistake(at, fmt.Errorf("service %s is declared twice: remove one", v.Name))
		return
	}
	if err := v.Validate(); err != nil {
		for _, one := range Flatten(err) {
			t.mistake(atReal(at, v, one.Error()), one)
		}
		return
	}
	t.Declared.Services = append(t.Declared.Services, v.Name)
	have, known := t.desired.Service(v.Name)
	switch {
	case known && t.unedited(have.Origin, edited(t.spec.Edit).service, v.Name):
		t.mistake(at, notInFile("service "+v.Name))
		return
	case known && have.Origin != t.origin && !have.Equal(ownedService(v, have)) && !t.takes(have.Origin):
		t.mistake(at, DiffersFromFile("service "+v.Name, have.Origin, "`fairlead service rm "+v.Name+"`"))
		return
	case known && have.Origin != t.origin && !t.adopts(have.Origin):
		t.noteUnchanged("service", v.Name, have.Origin)
		return
	}
	t.desired.Services = putService(t.desired.Services, v)
}

// servicePart returns the part of the Spec that an error about a service is about. It
// is empty if there is none.
func (t *Draft) servicePart(text string) string {
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

// putService adds the service to the list, in which it replaces one with the same name.
// The list is the draft's own copy (pruneServices).
func putService(all []model.VirtualService, v model.VirtualService) []model.VirtualService {
	if i := slices.IndexFunc(all, func(o model.VirtualService) bool { return o.Name == v.Name }); i >= 0 {
		all[i] = v
		return all
	}
	return append(all, v)
}
