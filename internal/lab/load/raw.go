package load

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Streams block in raw system calls, of which the Go runtime is not notified. With
// ordinary calls, sysmon takes the processor from a thread that is in a system call
// for 10 ms. For this it wakes thousands of times per second, on cores that are
// being measured (this cost a fifth of the throughput on pinned cores). Raw calls
// are safe because every thread has its own processor (newJob), no stop-the-world
// happens during a run, and each call ends within its socket's time limit.

func rawRead(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return int(n), errno
}

// rawSend writes to a socket. With MSG_MORE the kernel delays a partial segment
// until more data or the close follows.
func rawSend(fd int, b []byte, flags int) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		uintptr(flags), 0, 0)
	return int(n), errno
}

// rawAccept does not return the peer's address, so it allocates nothing.
func rawAccept(fd int) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), 0, 0, unix.SOCK_CLOEXEC, 0, 0)
	return int(n), errno
}

// rawSocket opens a socket for the family of an address.
func rawSocket(addr netip.Addr, kind int) (int, unix.Errno) {
	family := unix.AF_INET6
	if addr.Is4() {
		family = unix.AF_INET
	}
	fd, _, errno := unix.RawSyscall(unix.SYS_SOCKET, uintptr(family), uintptr(kind), 0)
	return int(fd), errno
}

func rawSetOption[T any](fd, level, opt int, v T) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(opt),
		uintptr(unsafe.Pointer(&v)), unsafe.Sizeof(v), 0)
	return errno
}

// rawConnect connects to an address in the kernel's format (rawAddress).
func rawConnect(fd int, address []byte) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&address[0])),
		uintptr(len(address)))
	return errno
}

func rawClose(fd int) {
	_, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
}

// rawMessage calls recvmsg(2) or sendmsg(2).
func rawMessage(call uintptr, fd int, m *unix.Msghdr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(m)), 0)
	return int(n), errno
}

// rawMany calls recvmmsg(2) or sendmmsg(2).
func rawMany(call uintptr, fd int, m []mmsghdr, flags uintptr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), flags, 0, 0)
	return int(n), errno
}

// rawSleep sleeps until a CLOCK_MONOTONIC time in ns, or until a signal.
func rawSleep(until int64) {
	ts := unix.NsecToTimespec(until)
	_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME,
		uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
}
