package spec

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/model"
)

// unchanged are the objects of another origin that are as declared.
type unchanged struct {
	by    model.Origin
	names []string
}

// noteUnchanged records that an object of another origin is as declared.
func (t *Draft) noteUnchanged(kind, name string, by model.Origin) {
	i := slices.IndexFunc(t.unchanged, func(u unchanged) bool { return u.by == by })
	if i < 0 {
		i, t.unchanged = len(t.unchanged), append(t.unchanged, unchanged{by: by})
	}
	t.unchanged[i].names = append(t.unchanged[i].names, kind+" "+name)
}

// noteUnchangedObjects adds one note per origin.
func (t *Draft) noteUnchangedObjects() {
	for _, u := range t.unchanged {
		owner, object := createdBy(u.by), "it"
		if len(u.names) > 1 {
			owner, object = createdAllBy(u.by), "them"
		}
		t.Notes = append(t.Notes, fmt.Sprintf("already as declared: %s (%s, and files will not remove %s)",
			strings.Join(u.names, ", "), owner, object))
	}
}
