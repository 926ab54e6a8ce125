package daemon

import (
	"fmt"

	"fairlead/internal/model"
)

// made says who has made something.
func made(by model.Origin) string {
	switch {
	case by == model.FromCommand:
		return "a command made it"
	case by.Set() != "":
		return fmt.Sprintf("the files of set %s declare it", by.Set())
	case by.IsFile():
		return "files without a name declare it"
	}
	return fmt.Sprintf("%s made it", by)
}

// theirs is the mistake of declaring what somebody else has made otherwise;
// undo is the command that takes away what a command made.
func theirs(what string, by model.Origin, undo string) error {
	todo := "take it away there"
	if by == model.FromCommand {
		todo = "take it away with " + undo
	}
	return fault(Conflict, "%s is there otherwise than declared, and %s: %s and apply again, or declare it as it is (`fairlead get`)", what, made(by), todo)
}

// others refuses a request that would change what somebody else has made.
func others(what string, by model.Origin) error {
	todo := "change it there, or choose another name"
	if by.IsFile() {
		todo = "change them and `fairlead apply`, or `fairlead destroy` all that they declare"
	}
	return fault(Conflict, "%s is not a command's to change: %s: %s", what, made(by), todo)
}
