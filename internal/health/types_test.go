package health

import (
	"context"
	"slices"
	"testing"

	"fairlead/internal/model"
)

// TestTypesAreTheModels checks that there is a checker for each type that the model
// names.
func TestTypesAreTheModels(t *testing.T) {
	var names []model.CheckType
	container := func(context.Context, string) (bool, string, error) { return true, "", nil }
	for _, of := range Types() {
		names = append(names, of.Name)
		check := model.Check{Type: of.Name, Query: "example.org", Command: []string{"/bin/true"}}
		if one, err := New(check, Means{Container: container}); one == nil || err != nil {
			t.Errorf("%s: %v, %v; want a checker", of.Name, one, err)
		}
	}
	if want := model.CheckTypes(); !slices.Equal(append(names, model.CheckNone), want) {
		t.Errorf("got %v and %s, want %v", names, model.CheckNone, want)
	}
}
