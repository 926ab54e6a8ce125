package spec

import (
	"fmt"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// createdBy says who created an object.
func createdBy(by model.Origin) string {
	if by == model.FromCluster {
		return "it belongs to the cluster"
	}
	return creator(by) + " it"
}

// createdAllBy is createdBy for several objects.
func createdAllBy(by model.Origin) string {
	if by == model.FromCluster {
		return "they belong to the cluster"
	}
	return creator(by) + " them"
}

func creator(by model.Origin) string {
	switch {
	case by == model.FromCommand:
		return "a command created"
	case by.Set() != "":
		return fmt.Sprintf("the files of set %s declare", by.Set())
	case by.IsFile():
		return "files without a set name declare"
	}
	return fmt.Sprintf("%s created", by)
}

// DiffersFromFile returns the mistake of declaring an object of another origin with
// different settings. undo is the command that removes what a command created.
func DiffersFromFile(what string, by model.Origin, undo string) error {
	todo := "remove it there and apply again"
	if by == model.FromCommand {
		todo = "remove it with " + undo + " and apply again, apply with --adopt so that the files change it"
	}
	return api.Faultf(api.Conflict, "%s differs from the file, and %s: %s, or declare it as it is (`fairlead get`)",
		what, createdBy(by), todo)
}

// OtherOrigin refuses a command's request to change an object of another origin.
func OtherOrigin(what string, by model.Origin) error {
	todo := "change it there, or choose another name"
	switch {
	case by == model.FromCluster:
		return api.Faultf(api.Conflict,
			"%s belongs to the cluster: change it for all hosts with the option --cluster, or choose another name", what)
	case by.IsFile():
		todo = "change the files and run `fairlead apply`, or remove all that they declare with `fairlead destroy`"
	}
	return api.Faultf(api.Conflict, "%s cannot be changed by a command: %s: %s", what, createdBy(by), todo)
}
