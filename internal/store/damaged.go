package store

import (
	"errors"
	"fmt"

	"fairlead/internal/escape"
)

// DamagedError is the error of OpenFile and ReadDesired when a database does not have what was stored in it.
type DamagedError struct {
	Path  string
	Cause error
	// advice says what the user can do.
	advice string
}

// Error implements error.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("open store %s: %v: %s", e.Path, e.Cause, e.advice)
}

// Unwrap returns the cause.
func (e *DamagedError) Unwrap() error { return e.Cause }

// advise completes the errors about damaged databases.
func (at Places) advise(err error) error {
	if damaged := new(DamagedError); errors.As(err, &damaged) {
		damaged.advice = "restore a backup of the file, or move it to start with an empty store"
		if _, err := readCopy(damaged.Path); err == nil {
			damaged.advice = "run `" + at.restoreCommand() + "` to use its copy"
		}
	}
	return err
}

// restoreCommand returns the command that restores the databases.
func (at Places) restoreCommand() string {
	command := "fairlead restore"
	dirs := []struct{ flag, is, usual string }{{"state-dir", at.State, StateDir}, {"run-dir", at.Run, RunDir}}
	for _, dir := range dirs {
		if dir.is != dir.usual {
			command += " --" + dir.flag + " " + escape.Shell(dir.is)
		}
	}
	return command
}
