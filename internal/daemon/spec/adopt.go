package spec

import (
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// editedNames says which objects a user has edited.
type editedNames struct{ network, attachment, service func(name string) bool }

func edited(e *api.Edit) editedNames {
	if e == nil {
		e = &api.Edit{}
	}
	return editedNames{
		func(name string) bool {
			return slices.ContainsFunc(e.Networks, func(n model.Network) bool { return n.Name == name })
		},
		func(name string) bool {
			return slices.ContainsFunc(e.Attachments, func(a api.Declared) bool { return a.Name == name })
		},
		func(name string) bool {
			return slices.ContainsFunc(e.Services, func(v model.VirtualService) bool { return v.Name == name })
		},
	}
}

// notInFile is the mistake of declaring an object that is unedited.
func notInFile(what string) error {
	return api.Faultf(api.Conflict, "%s is not in the file that you edit, but a command has created it: choose another "+
		"name, or begin again with `fairlead edit`", what)
}

// NoteAdopted returns a note if objects of commands become a set's.
func NoteAdopted(all []api.Change) []string {
	if !slices.ContainsFunc(all, func(c api.Change) bool { return c.Action == api.Adopted }) {
		return nil
	}
	return []string{"adopted objects belong to the files from now on: an apply of the set without them removes them"}
}
