package stored

import (
	"encoding/json"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// CheckEdit returns a Fault with code Conflict if objects of commands are no more as they were when a
// user began to edit them. A nil edit has none.
func CheckEdit(w model.Desired, e *api.Edit) error {
	if e == nil {
		return nil
	}
	now, _ := Editable(w)
	if n, ok := changed(now.Networks, e.Networks); ok {
		return changedMeanwhile("network " + n.Name)
	}
	if a, ok := changed(now.Attachments, e.Attachments); ok {
		return changedMeanwhile("attachment " + a.Name)
	}
	if v, ok := changed(now.Services, e.Services); ok {
		return changedMeanwhile("service " + v.Name)
	}
	return nil
}

// changed returns the first object of a list that has no equal one now. It compares the JSON, in which the user's
// command got the objects.
func changed[T any](now, before []T) (first T, found bool) {
	texts := map[string]bool{}
	for _, o := range now {
		texts[encoded(o)] = true
	}
	for _, o := range before {
		if !texts[encoded(o)] {
			return o, true
		}
	}
	return first, false
}

// encoded returns the JSON of an object that came as JSON or was stored as such.
func encoded(o any) string {
	text, _ := json.Marshal(o) // cannot fail, because it was JSON before
	return string(text)
}

func changedMeanwhile(object string) error {
	return api.Faultf(api.Conflict, "%s has changed since you began to edit it: edit it again", object)
}
