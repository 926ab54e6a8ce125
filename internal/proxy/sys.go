package proxy

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// These calls work on non-blocking descriptors only. They are raw: none can
// sleep, so the Go scheduler need not know of them. They return an Errno
// and not an error, because EAGAIN is frequent.

func accept(fd int, from *sockaddr) (int, unix.Errno) {
	from.len = uint32(len(from.raw))
	n, _, e := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&from.raw)),
		uintptr(unsafe.Pointer(&from.len)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	return int(n), e
}

func socketOf(family, kind int) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_SOCKET, uintptr(family), uintptr(kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC), 0)
	return int(n), e
}

func bindFD(fd int, to *sockaddr) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&to.raw)), uintptr(to.len))
	return e
}

func connect(fd int, to *sockaddr) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&to.raw)), uintptr(to.len))
	return e
}

func setOption(fd, level, name, value int) unix.Errno {
	v := int32(value)
	_, _, e := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(&v)), unsafe.Sizeof(v), 0)
	return e
}

// receive reads from a socket; it needs a non-empty b.
func receive(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0,
		0)
	return int(n), e
}

// send writes to a socket without raising SIGPIPE; it needs a non-empty b.
func send(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		unix.MSG_NOSIGNAL, 0, 0)
	return int(n), e
}

func splice(from, to, n int) (int, unix.Errno) {
	moved, _, e := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n),
		unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	return int(moved), e
}

func shutdownWrite(fd int) {
	_, _, _ = unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
}

func closeFD(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// reset closes a connection with a RST.
func reset(fd int) {
	now := unix.Linger{Onoff: 1, Linger: 0}
	_, _, _ = unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER,
		uintptr(unsafe.Pointer(&now)), unsafe.Sizeof(now), 0)
	closeFD(fd)
}

// mmsghdr is the kernel's struct mmsghdr on 64-bit machines.
type mmsghdr struct {
	unix.Msghdr
	n uint32
	_ uint32
}

func receiveBatch(fd int, m []mmsghdr) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)),
		unix.MSG_DONTWAIT, 0, 0)
	return int(n), e
}

func sendBatch(fd int, m []mmsghdr) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)),
		unix.MSG_DONTWAIT, 0, 0)
	return int(n), e
}

// localName reads the local address of a socket.
func localName(fd int, name *sockaddr) unix.Errno {
	name.len = uint32(len(name.raw))
	_, _, e := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&name.raw)),
		uintptr(unsafe.Pointer(&name.len)))
	return e
}
