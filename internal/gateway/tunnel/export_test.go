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

// Break makes the loop panic when the peer with the address sends something.
func Break(peer net.Addr) {
	for _, l := range loops() {
		l.mu.Lock()
		for fd, s := range l.sides {
			at, err := unix.Getpeername(int(fd))
			if err == nil && at.(*unix.SockaddrInet4).Port == peer.(*net.TCPAddr).Port {
				s.other = nil
			}
		}
		l.mu.Unlock()
	}
}
