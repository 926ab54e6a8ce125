package inspect

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// Knock is a probe packet of a flow, sent from a separate socket: a TCP SYN or an
// empty UDP datagram.
type Knock struct {
	fd    int
	proto model.Proto
	to    netip.AddrPort
	// Local is the source address and port. If the address is unspecified, the
	// kernel chooses it.
	Local netip.AddrPort
}

// The results of a Knock.
const (
	Answered    = "answered"
	Refused     = "refused"
	Unanswered  = "unanswered"
	Unreachable = "unreachable"
)

// Knock opens a socket in the host's namespace without sending anything. If from is
// the zero value, the kernel chooses the source address.
func (h *Reader) Knock(proto model.Proto, from netip.Addr, to netip.AddrPort) (*Knock, error) {
	k := &Knock{fd: -1, proto: proto, to: to}
	err := h.ns.Do(func() error { return k.open(from) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a socket to probe %s/%s: %w", to, proto, err), k.Close())
	}
	return k, nil
}

func (k *Knock) open(from netip.Addr) (err error) {
	family, kind := unix.AF_INET6, unix.SOCK_STREAM
	if k.to.Addr().Is4() {
		family = unix.AF_INET
	}
	if k.proto == model.UDP {
		kind = unix.SOCK_DGRAM
	}
	if k.fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return err
	}
	if k.proto == model.TCP {
		if err := errors.Join(unix.SetsockoptInt(k.fd, unix.IPPROTO_TCP, unix.TCP_SYNCNT, 1),
			unix.SetsockoptLinger(k.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})); err != nil {
			return err
		}
	}
	if !from.IsValid() {
		from = netip.IPv6Unspecified()
		if k.to.Addr().Is4() {
			from = netip.IPv4Unspecified()
		}
	}
	if err := unix.Bind(k.fd, nlutil.Sockaddr(netip.AddrPortFrom(from, 0))); err != nil {
		return fmt.Errorf("bind %s: %w", from, err)
	}
	name, err := unix.Getsockname(k.fd)
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		k.Local = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		k.Local = netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return err
}

// Send sends the packet. Its error may be the result of the probe: see Meaning.
func (k *Knock) Send() error {
	err := unix.Connect(k.fd, nlutil.Sockaddr(k.to))
	if err == nil && k.proto == model.UDP {
		_, err = unix.Write(k.fd, nil)
	}
	if errors.Is(err, unix.EINPROGRESS) {
		return nil
	}
	return err
}

// Result waits until the deadline for the result of the probe: one of the constants
// above, or "" if there is none yet. Each result is returned only once.
func (k *Knock) Result(deadline time.Time) (string, error) {
	events := int16(unix.POLLOUT)
	if k.proto == model.UDP {
		events = unix.POLLIN
	}
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return "", nil
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(k.fd), Events: events}}, int(left/time.Millisecond)+1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("wait for an answer: %w", err)
		}
		if n == 0 {
			return "", nil
		}
		number, err := unix.GetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			return "", fmt.Errorf("read the result of a probe: %w", err)
		}
		return Meaning(unix.Errno(number)), nil
	}
}

// Meaning returns the result that an error of Send or of the socket stands for.
func Meaning(err error) string {
	switch {
	case err == nil || errors.Is(err, unix.Errno(0)):
		return Answered
	case errors.Is(err, unix.ECONNREFUSED):
		return Refused
	case errors.Is(err, unix.ETIMEDOUT):
		return Unanswered
	}
	return Unreachable
}

// Close closes the socket. It ends a TCP connection with a reset.
func (k *Knock) Close() error {
	if k.fd < 0 {
		return nil
	}
	return unix.Close(k.fd)
}
