// Package outcome says what became of a request: who caused its failure, and which attempt it is.
//
// Middlewares and load balancers meet here. The package does not decide who is to blame, and sends nothing again.
package outcome

import (
	"io"
	"net/http"
	"time"
)

// Fault is who caused the failure of a request.
type Fault uint8

// The causes. NoFault is also that of a request whose server has answered, whatever the status.
const (
	NoFault Fault = iota
	ClientFault
	ServerFault
	GatewayFault
)

// blamed is a response writer that knows the fault of its request.
type blamed interface {
	Fault() Fault
	SetFault(Fault)
}

// blamedOf returns the writer that knows the fault of the request, nil if there is none.
func blamedOf(w http.ResponseWriter) blamed {
	for {
		switch at := w.(type) {
		case blamed:
			return at
		case interface{ Unwrap() http.ResponseWriter }:
			w = at.Unwrap()
		default:
			return nil
		}
	}
}

// FaultOf returns the fault of the request that the writer answers.
func FaultOf(w http.ResponseWriter) Fault {
	if b := blamedOf(w); b != nil {
		return b.Fault()
	}
	return NoFault
}

// Blame records a fault of the request that the writer answers.
func Blame(w http.ResponseWriter, f Fault) {
	if b := blamedOf(w); b != nil {
		b.SetFault(f)
	}
}

// LastRead returns when the last part of a request's body came from the client, the zero time if the body does not
// know that.
func LastRead(body io.Reader) time.Time {
	if b, ok := body.(interface{ LastRead() time.Time }); ok {
		return b.LastRead()
	}
	return time.Time{}
}

// Later returns the later one of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// ServerTook returns how long a server has taken until now for a request that began at a time. The time in which it
// waited for the client's body does not count.
func ServerTook(r *http.Request, began time.Time) time.Duration {
	return time.Since(Later(began, LastRead(r.Body)))
}
