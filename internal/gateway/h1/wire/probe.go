package wire

import (
	"sync"
	"syscall"

	"fairlead/internal/gateway/nonblock"

	"golang.org/x/sys/unix"
)

// probe holds the result of one MSG_PEEK, so that it needs no allocation.
type probe struct {
	run   func(fd uintptr) bool
	quiet bool
}

var probePool = sync.Pool{New: func() any {
	p := new(probe)
	p.run = p.peek
	return p
}}

func (p *probe) peek(fd uintptr) bool {
	p.quiet = IsQuiet(fd)
	return true
}

// IsQuiet is quiet within a call of RawConn.Read.
func IsQuiet(fd uintptr) bool {
	var b [1]byte
	_, errno := nonblock.Receive(fd, b[:], unix.MSG_PEEK)
	return errno == syscall.EAGAIN
}
