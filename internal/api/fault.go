package api

import (
	"errors"
	"fmt"

	"fairlead/internal/model"
)

// Code is the kind of a failure, for programs that act on it.
type Code string

// The codes.
const (
	// Invalid is a mistake in the request.
	Invalid Code = "invalid"
	// NotFound is a name of an object or sandbox that does not exist.
	NotFound Code = "not_found"
	// Conflict is a request that contradicts an existing object, in the desired state
	// or on the host.
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

// Faultf returns a Fault with the code and the formatted error.
func Faultf(code Code, format string, args ...any) error {
	return &Fault{Code: code, Err: fmt.Errorf(format, args...)}
}

// CodeOf returns the code of an error of the daemon or of a client of its API. An error
// that wraps no Fault gets PortTaken if it wraps *model.PortTakenError, and else Failed.
func CodeOf(err error) Code {
	var f *Fault
	var taken *model.PortTakenError
	switch {
	case errors.As(err, &f):
		return f.Code
	case errors.As(err, &taken):
		return PortTaken
	}
	return Failed
}
