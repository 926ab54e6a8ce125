package main

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

var one = []byte{1}

// connect opens the connection for round trips, and the flow of the packets.
func (e *ends) connect() (err error) {
	if e.client, e.peer, err = e.dial(); err != nil {
		return err
	}
	for _, fd := range []int{e.client, e.peer} {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return err
		}
	}
	if e.flow, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return err
	}
	if err := unix.Connect(e.flow, e.target); err != nil {
		return err
	}
	return e.greet()
}

// close closes all sockets that are open.
func (e *ends) close() {
	for _, fd := range []int{e.tcp, e.udp, e.client, e.peer, e.flow} {
		if fd > 0 {
			_ = unix.Close(fd)
		}
	}
}

// greet sends a datagram in each direction, so that the path knows the flow as answered.
func (e *ends) greet() error {
	if _, err := unix.Write(e.flow, one); err != nil {
		return err
	}
	_, from, err := unix.Recvfrom(e.udp, make([]byte, 8), 0)
	if err != nil {
		return err
	}
	if err := unix.Sendto(e.udp, one, 0, from); err != nil {
		return err
	}
	_, err = unix.Read(e.flow, make([]byte, 8))
	return err
}

// dial opens a connection and accepts it.
func (e *ends) dial() (client, server int, err error) {
	client, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, err
	}
	if err := unix.Connect(client, e.target); err != nil {
		return -1, -1, err
	}
	server, _, err = unix.Accept4(e.tcp, unix.SOCK_CLOEXEC)
	return client, server, err
}

// roundTrip sends a byte in each direction of a connection.
func (e *ends) roundTrip() error {
	return first(send(e.client), receive(e.peer), send(e.peer), receive(e.client))
}

// connectionCalls is the number of system calls of connection.
const connectionCalls = 10

// connection opens a connection, sends a byte in each direction and closes it, the server first.
func (e *ends) connection() error {
	client, server, err := e.dial()
	if err != nil {
		return err
	}
	err = first(send(client), receive(server), send(server), receive(client))
	return first(err, unix.Close(server), end(client), unix.Close(client))
}

// packet sends a datagram.
func (e *ends) packet() error { return first(send(e.flow), receive(e.udp)) }

// nothing makes system calls that do nothing.
func nothing(calls int) error {
	for range calls {
		_, _, _ = unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Raw system calls do not involve Go's scheduler.

func send(fd int) error {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one[0])), 1)
	return failed("write", errno)
}

func receive(fd int) error {
	var b [8]byte
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), 8)
	if errno == 0 && n != 1 {
		return os.NewSyscallError("read", unix.EPROTO)
	}
	return failed("read", errno)
}

// end waits for the end of a connection.
func end(fd int) error {
	var b [1]byte
	_, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), 1)
	return failed("read", errno)
}

func failed(call string, errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return os.NewSyscallError(call, errno)
}
