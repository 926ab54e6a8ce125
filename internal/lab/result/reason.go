package result

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// Reason returns the text of an error of a request, without addresses and ports, which differ between requests.
func Reason(err error) string {
	var op *net.OpError
	var errno syscall.Errno
	doing := "read"
	if errors.As(err, &op) {
		doing = op.Op
	}
	switch {
	case op != nil && op.Timeout():
		return doing + ": no answer"
	case errors.As(err, &errno):
		return doing + ": " + errno.Error()
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return doing + ": closed without an answer"
	}
	return err.Error()
}
