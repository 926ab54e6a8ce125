package stored

import (
	"bytes"
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
	for _, n := range e.Networks {
		if !among(now.Networks, n) {
			return changedMeanwhile("network " + n.Name)
		}
	}
	for _, a := range e.Attachments {
		if !among(now.Attachments, a) {
			return changedMeanwhile("attachment " + a.Name)
		}
	}
	for _, v := range e.Services {
		if !among(now.Services, v) {
			return changedMeanwhile("service " + v.Name)
		}
	}
	return nil
}

// among reports whether a list has an object with the same JSON, in which the user's command got it.
func among[T any](all []T, one T) bool {
	want, err := json.Marshal(one)
	for _, o := range all {
		if text, failed := json.Marshal(o); err == nil && failed == nil && bytes.Equal(text, want) {
			return true
		}
	}
	return false
}

func changedMeanwhile(object string) error {
	return api.Faultf(api.Conflict, "%s has changed since you began to edit it: edit it again", object)
}
