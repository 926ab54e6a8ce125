package wire

import (
	"net"
	"syscall"

	"fairlead/internal/gateway/nonblock"

	"golang.org/x/sys/unix"
)

// Quiet returns true if a socket is open and has nothing to read. A connection that waits for a
// request has no other state; one with bytes has received what no request has asked for.
func Quiet(raw syscall.RawConn) bool {
	p := probePool.Get().(*probe)
	p.quiet = false
	err := raw.Read(p.run)
	result := p.quiet && err == nil
	probePool.Put(p)
	return result
}

// ClosedByPeer returns true if the peer has closed the connection. If the kernel holds bytes that were
// not read, a plain connection may still be half-closed on purpose and counts as open; those bytes on
// a TLS connection are commonly the alert that announces the end.
func ClosedByPeer(raw syscall.RawConn, plain bool) bool {
	closed := false
	err := raw.Control(func(fd uintptr) {
		if plain {
			var b [1]byte
			n, errno := nonblock.Receive(fd, b[:], unix.MSG_PEEK)
			closed = errno == 0 && n == 0 || errno != 0 && errno != syscall.EAGAIN
			return
		}
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		closed = err == nil && (info.State == tcpClose || info.State == TCPCloseWait)
	})
	return closed && err == nil
}

// IsReset returns true if the peer has reset the connection. One that the peer has only ended reads without
// an error.
func IsReset(raw syscall.RawConn) bool {
	reset := false
	err := raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		reset = err == nil && info.State == tcpClose
	})
	return reset && err == nil
}

// Unsent returns true if the kernel holds bytes that the peer has not acknowledged. While a body is
// spliced, this alone distinguishes a slow client from a slow server.
func Unsent(raw syscall.RawConn) bool { return Unacknowledged(raw) > 0 }

// Unread returns true if the kernel holds bytes that were not read. While a body is spliced, it then waits
// for a slow server, and not for the client.
func Unread(raw syscall.RawConn) bool {
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) // 0 if it is closed
	return n > 0
}

// Unacknowledged returns the number of bytes that were written and that the peer has not acknowledged.
func Unacknowledged(raw syscall.RawConn) (n int) {
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) }) // 0 if it is closed
	return n
}

// Transferred has the numbers of bytes that a socket has received, and that its peer has acknowledged.
type Transferred [2]uint64

// The indexes of Transferred.
const (
	Received = iota
	Acknowledged
)

// TransferredBy returns the numbers of a socket. They are zero if it is closed.
func TransferredBy(raw syscall.RawConn) (t Transferred) {
	_ = raw.Control(func(fd uintptr) { // fails only if the connection is closed
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			t = Transferred{info.Bytes_received, info.Bytes_acked}
		}
	})
	return t
}

// States of a TCP socket (include/net/tcp_states.h of the kernel).
const (
	tcpClose     = 7
	TCPCloseWait = 8
)

// SpliceStep is how much of a long body moves between two reports of progress.
const SpliceStep = 256 << 10

// Splicer is a request's body that can move its rest to a TCP connection without copying.
type Splicer interface {
	SpliceTo(*net.TCPConn) (moved int64, err error)
}
