package proxy

import "golang.org/x/sys/unix"

// pipe holds bytes that were read and not yet written.
type pipe struct{ read, write int }

const (
	// pipeSize lets one splice take what a receive queue commonly holds.
	pipeSize = 1 << 20
	// idlePipes is how many empty pipes a worker keeps.
	idlePipes = 16
	// pipeRest is how many pipes are refused without a try after one could not be
	// made.
	pipeRest = 256
)

// pipePool keeps empty pipes, because creating one takes three system calls.
type pipePool struct {
	idle []pipe
	rest int // pipes to refuse before the next try
}

// get returns an empty pipe that holds at least bufferSize. It returns false if
// there is none: there are no free descriptors, or the pipes of this user have as
// many pages as fs.pipe-user-pages-soft or -hard permits.
func (p *pipePool) get() (pipe, bool) {
	if n := len(p.idle); n > 0 {
		got := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return got, true
	}
	if p.rest > 0 {
		p.rest--
		return pipe{}, false
	}
	made, ok := newPipe()
	if !ok {
		p.rest = pipeRest
	}
	return made, ok
}

// newPipe makes a pipe. Above fs.pipe-user-pages-soft the kernel gives a process
// without CAP_SYS_RESOURCE pipes of two pages and refuses to enlarge them. Such a
// pipe is slower than the buffer.
func newPipe() (pipe, bool) {
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC) != nil {
		return pipe{}, false
	}
	made := pipe{fds[0], fds[1]}
	size, err := unix.FcntlInt(uintptr(made.read), unix.F_SETPIPE_SZ, pipeSize)
	if err != nil {
		size, err = unix.FcntlInt(uintptr(made.read), unix.F_GETPIPE_SZ, 0)
	}
	if err != nil || size < bufferSize {
		made.close()
		return pipe{}, false
	}
	return made, true
}

func (p pipe) close() {
	closeFD(p.read)
	closeFD(p.write)
}

// put takes a pipe back; one that still holds bytes is closed.
func (p *pipePool) put(old pipe, sockets int) {
	if sockets > 0 || len(p.idle) >= idlePipes {
		old.close()
		return
	}
	p.idle = append(p.idle, old)
}
