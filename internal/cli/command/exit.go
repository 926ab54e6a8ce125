package command

import (
	"fmt"
	"syscall"
)

// Exit codes.
const (
	ExitOK = 0
	// ExitFailed means that the command failed, or that a --fail-if condition
	// holds.
	ExitFailed = 1
	// ExitUsage means that the command line is wrong, or that the host lacks
	// something that the command needs.
	ExitUsage = 2
	// ExitUnexamined means that the command could not examine everything, and that what
	// it examined does not decide the answer.
	ExitUnexamined = 3
	// ExitSignal plus the signal's number means that a signal ended the command.
	ExitSignal = 128
)

// UsageError is an error that the caller can correct: a mistake in the command
// line, or something that the host lacks.
type UsageError struct{ error }

func (e UsageError) Unwrap() error { return e.error }

// Usage marks an error as one that the caller can correct; nil stays nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return UsageError{err}
}

// Exit is an error that sets the exit code of fairlead, e.g. to that of
// the command that `fairlead run` ran.
type Exit struct {
	Code int
	// Why is the error to print; nil prints nothing.
	Why error
}

func (e Exit) Error() string {
	if e.Why != nil {
		return e.Why.Error()
	}
	return fmt.Sprintf("the command exited with %d", e.Code)
}

// Unwrap returns the error to print, so that each of its lines is printed.
func (e Exit) Unwrap() error { return e.Why }

// Interrupted is the cause of a context that a signal cancelled.
type Interrupted syscall.Signal

func (i Interrupted) Error() string { return "interrupted by " + syscall.Signal(i).String() }
