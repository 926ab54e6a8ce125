package tunnel

import (
	"net"

	"golang.org/x/sys/unix"
)

// Shared returns how many connections the loops have.
func Shared() (n int) {
	for _, l := range loops() {
		l.mu.Lock()
		n += len(l.sides)
		l.mu.Unlock()
	}
	return n
}

// Break makes the loop panic when the peer sends something. Connections to different addresses may have the same port.
func Break(peer net.Conn) {
	port := func(a net.Addr) int { return a.(*net.TCPAddr).Port }
	for _, l := range loops() {
		l.mu.Lock()
		for fd, s := range l.sides {
			to, err := unix.Getpeername(int(fd))
			from, failed := unix.Getsockname(int(fd))
			if err == nil && failed == nil && to.(*unix.SockaddrInet4).Port == port(peer.LocalAddr()) &&
				from.(*unix.SockaddrInet4).Port == port(peer.RemoteAddr()) {
				s.other = nil
			}
		}
		l.mu.Unlock()
	}
}
