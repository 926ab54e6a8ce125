package daemon

import (
	"errors"
	"fmt"

	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Code is the kind of a failure, for programs that act on it.
type Code string

// The codes.
const (
	// Invalid is a mistake in the request.
	Invalid Code = "invalid"
	// NotFound is a name of an object or sandbox that does not exist.
	NotFound Code = "not_found"
	// Conflict is a request that contradicts another object in the desired state or on
	// the host.
	Conflict Code = "conflict"
	// PortTaken is a host port that another process uses. If another publish uses it,
	// the code is Conflict, and the error also wraps *model.PortTakenError.
	PortTaken Code = "port_taken"
	// Failed is any other failure: of the kernel, the disk, or a sandbox that ended.
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

// CodeOf returns the code of an error of this package's functions or of a client of
// its API. An error without a code of its own gets PortTaken, NotFound or Invalid if it
// wraps *model.PortTakenError, sandbox.ErrAbsent or sandbox.ErrHost, and else Failed.
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
