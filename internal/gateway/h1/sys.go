package h1

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// recvNow reads from a socket without blocking. The scheduler does not see a RawSyscall:
// otherwise, if a call took a while on a busy host, the scheduler would start another thread meanwhile.
func recvNow(fd uintptr, p []byte, flags int) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))),
			uintptr(len(p)), uintptr(flags|unix.MSG_DONTWAIT), 0, 0)
		if errno != syscall.EINTR {
			return int(n), errno
		}
	}
}

// sendNow writes to a socket without blocking.
func sendNow(fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))),
			uintptr(len(p)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		if errno != syscall.EINTR {
			return int(n), errno
		}
	}
}

// quiet returns true if a socket is open and has nothing to read. A connection that waits for a
// request has no other state; one with bytes has received what no request has asked for.
func quiet(raw syscall.RawConn) bool {
	p := probePool.Get().(*probe)
	p.quiet = false
	err := raw.Read(p.run)
	result := p.quiet && err == nil
	probePool.Put(p)
	return result
}

// closedByPeer returns true if the peer has closed the connection. If the kernel holds bytes that were
// not read, a plain connection may still be half-closed on purpose and counts as open; those bytes on
// a TLS connection are commonly the alert that announces the end.
func closedByPeer(raw syscall.RawConn, plain bool) bool {
	closed := false
	err := raw.Control(func(fd uintptr) {
		if plain {
			var b [1]byte
			n, errno := recvNow(fd, b[:], unix.MSG_PEEK)
			closed = errno == 0 && n == 0 || errno != 0 && errno != syscall.EAGAIN
			return
		}
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		closed = err == nil && (info.State == tcpClose || info.State == tcpCloseWait)
	})
	return closed && err == nil
}

// unsent returns true if the kernel holds bytes that the peer has not acknowledged. While a body is
// spliced, this alone distinguishes a slow client from a slow server.
func unsent(raw syscall.RawConn) bool { return unacknowledged(raw) > 0 }

// unacknowledged returns the number of bytes that were written and that the peer has not acknowledged.
func unacknowledged(raw syscall.RawConn) (n int) {
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) }) // 0 if it is closed
	return n
}

// transferred has the numbers of bytes that a socket has received, and that its peer has acknowledged.
type transferred [2]uint64

const (
	received = iota
	acknowledged
)

func transferredBy(raw syscall.RawConn) (t transferred) {
	_ = raw.Control(func(fd uintptr) { // fails only if the connection is closed
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			t = transferred{info.Bytes_received, info.Bytes_acked}
		}
	})
	return t
}

// States of a TCP socket (include/net/tcp_states.h of the kernel).
const (
	tcpClose     = 7
	tcpCloseWait = 8
)
