package h1

import (
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// probe holds the arguments of one MSG_PEEK, so that it needs no allocation.
type probe struct {
	run   func(fd uintptr) bool
	quiet bool
	b     [1]byte
}

var probePool = sync.Pool{New: func() any {
	p := new(probe)
	p.run = p.peek
	return p
}}

func (p *probe) peek(fd uintptr) bool {
	_, errno := recvNow(fd, p.b[:], unix.MSG_PEEK)
	p.quiet = errno == syscall.EAGAIN
	return true
}
