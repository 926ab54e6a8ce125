package proxy

import "golang.org/x/sys/unix"

// pipe holds bytes that were read and not yet written.
type pipe struct{ read, write int }

const (
	// pipeSize lets one splice take what a receive queue commonly holds. It
	// must be at least bufferSize.
	pipeSize = 1 << 20
	// idlePipes is how many empty pipes a worker keeps.
	idlePipes = 16
)

// pipePool keeps empty pipes, because creating one takes three system calls.
type pipePool struct{ idle []pipe }

func (p *pipePool) get() (pipe, unix.Errno) {
	if n := len(p.idle); n > 0 {
		got := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return got, 0
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return pipe{}, err.(unix.Errno)
	}
	// Fails if the limit fs.pipe-user-pages-soft is reached. The default of
	// 64 KB works too, but is slower.
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
	return pipe{fds[0], fds[1]}, 0
}

// put takes a pipe back; one that still holds bytes is closed.
func (p *pipePool) put(old pipe, sockets int) {
	if sockets > 0 || len(p.idle) >= idlePipes {
		closeFD(old.read)
		closeFD(old.write)
		return
	}
	p.idle = append(p.idle, old)
}
