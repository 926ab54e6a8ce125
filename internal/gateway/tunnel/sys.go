package tunnel

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// receiveNow reads from a socket without blocking. The scheduler does not see a RawSyscall: otherwise, while
// another process has the CPU, its monitor would give this thread's processor to another thread, and
// poll for that every 20 µs.
func receiveNow(fd uintptr, p []byte) (int, syscall.Errno) {
	return transfer(unix.SYS_RECVFROM, fd, p, unix.MSG_DONTWAIT)
}

// sendNow writes to a socket without blocking.
func sendNow(fd uintptr, p []byte) (int, syscall.Errno) {
	return transfer(unix.SYS_SENDTO, fd, p, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

func transfer(trap, fd uintptr, p []byte, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
			flags, 0, 0)
		if errno != syscall.EINTR {
			return int(n), errno
		}
	}
}
