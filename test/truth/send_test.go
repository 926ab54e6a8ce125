package truth

import (
	"errors"
	"net/netip"
	"strings"
	"time"

	"fairlead/internal/kernel/netns"

	"golang.org/x/sys/unix"
)

// How long to wait for an answer: for an expected one on a busy machine, and for one that
// should not come.
const (
	expected   = 20 * time.Second
	unexpected = 1500 * time.Millisecond
)

// The results of a packet.
const (
	Answered = "answered"
	Refused  = "refused"
	Lost     = "lost"
)

// Fate is how a packet ended.
type Fate struct {
	Result string
	// By is how the socket that answered introduced itself. It is empty if a connection
	// was established and the socket sent nothing.
	By string
}

// Send opens a TCP connection or sends a datagram from a place, and returns its fate. It
// waits for an answer until the timeout.
func Send(from *netns.Namespace, to netip.AddrPort, udp bool, timeout time.Duration) (Fate, error) {
	family, kind := unix.AF_INET6, unix.SOCK_STREAM
	var at unix.Sockaddr = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		family, at = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	if udp {
		kind = unix.SOCK_DGRAM
	}
	var fd int
	if err := from.Do(func() (err error) {
		fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	}); err != nil {
		return Fate{}, err
	}
	defer unix.Close(fd)
	err := unix.Connect(fd, at)
	events := int16(unix.POLLOUT)
	if udp && err == nil {
		events = unix.POLLIN
		_, err = unix.Write(fd, []byte("?"))
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return Fate{Result: meaning(err)}, nil
	}
	deadline := time.Now().Add(timeout)
	ready, err := wait(fd, events, deadline)
	if err != nil || !ready {
		return Fate{Result: Lost}, err
	}
	number, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil || number != 0 {
		return Fate{Result: meaning(unix.Errno(number))}, err
	}
	return introduced(fd, deadline)
}

// introduced reads what the server says of itself.
func introduced(fd int, deadline time.Time) (Fate, error) {
	f := Fate{Result: Answered}
	ready, err := wait(fd, unix.POLLIN, deadline)
	if err != nil || !ready {
		return f, err
	}
	buf := make([]byte, 256)
	if n, err := unix.Read(fd, buf); err == nil {
		f.By = strings.TrimSpace(string(buf[:n]))
	}
	return f, nil
}

// wait waits until the socket is ready, or until the deadline.
func wait(fd int, events int16, deadline time.Time) (ready bool, err error) {
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return false, nil
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, int(left.Milliseconds())+1)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return n > 0, err
		}
	}
}

// meaning returns the result that a system call's error means.
func meaning(err error) string {
	switch {
	case errors.Is(err, unix.Errno(0)):
		return Answered
	case errors.Is(err, unix.ECONNREFUSED):
		return Refused
	}
	return Lost
}
