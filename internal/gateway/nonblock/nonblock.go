// Package nonblock has system calls for sockets that do not block. The scheduler does not see them (RawSyscall):
// otherwise, if a call took a while on a busy host, the scheduler would give the thread's processor to another
// thread, and poll for that every 20 µs.
package nonblock

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Receive reads from a socket, and returns EAGAIN if there is nothing to read. flags are those of recv(2).
func Receive(fd uintptr, p []byte, flags int) (int, syscall.Errno) {
	return transfer(unix.SYS_RECVFROM, fd, p, flags|unix.MSG_DONTWAIT)
}

// Send writes to a socket, and returns EAGAIN if it accepts nothing.
func Send(fd uintptr, p []byte) (int, syscall.Errno) {
	return transfer(unix.SYS_SENDTO, fd, p, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

func transfer(trap, fd uintptr, p []byte, flags int) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
			uintptr(flags), 0, 0)
		if errno != syscall.EINTR {
			return int(n), errno
		}
	}
}
