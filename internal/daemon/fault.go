package daemon

import (
	"errors"
	"fmt"

	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Code says what kind of failure an error is, for programs that decide on it.
type Code string

// The codes.
const (
	// Invalid is a mistake in what was asked for.
	Invalid Code = "invalid"
	// NotFound is a name that nothing has.
	NotFound Code = "not_found"
	// Conflict is a wish that clashes with another.
	Conflict Code = "conflict"
	// PortTaken is a host port that somebody else has.
	PortTaken Code = "port_taken"
	// Failed is anything else: the kernel, the disk, a sandbox that went away.
	Failed Code = "failed"
)

// Fault is an error with its code.
type Fault struct {
	Code Code
	Err  error
}

// Error implements error.
func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }

func fault(code Code, format string, args ...any) error {
	return &Fault{code, fmt.Errorf(format, args...)}
}

// CodeOf returns the code of an error.
func CodeOf(err error) Code {
	var f *Fault
	var taken *model.PortTakenError
	switch {
	case errors.As(err, &f):
		return f.Code
	case errors.As(err, &taken):
		return PortTaken
	case errors.Is(err, sandbox.ErrAbsent):
		return NotFound
	case errors.Is(err, sandbox.ErrHost):
		return Invalid
	}
	return Failed
}
