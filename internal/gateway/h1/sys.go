package h1

import (
	"syscall"

	"golang.org/x/sys/unix"

	"fairlead/internal/gateway/nonblock"
)

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
			n, errno := nonblock.Receive(fd, b[:], unix.MSG_PEEK)
			closed = errno == 0 && n == 0 || errno != 0 && errno != syscall.EAGAIN
			return
		}
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		closed = err == nil && (info.State == tcpClose || info.State == tcpCloseWait)
	})
	return closed && err == nil
}

// isReset returns true if the peer has reset the connection. One that the peer has only ended reads without
// an error.
func isReset(raw syscall.RawConn) bool {
	reset := false
	err := raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		reset = err == nil && info.State == tcpClose
	})
	return reset && err == nil
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
