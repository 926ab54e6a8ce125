package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Theory of operation. Who is connected to an address of the host's that is about
// to go would wait for an answer until its TCP gives up. Only a reset with the
// very sequence number that it expects ends the connection (RFC 5961), and
// conntrack does not tell it. But whoever gets a segment that cannot be the next
// answers by one that says what it expects (RFC 9293, 3.10.7.4). So each client is
// sent such a segment, in the name of the virtual address, and its answer meets
// the host's own TCP, which has no such connection and resets it. Conntrack must
// have forgotten the flow, or the answer goes where the flow went.

// resetPatience bounds how long clients' answers are waited for; a segment that
// may have been lost is sent once more after half of it.
const resetPatience = 600 * time.Millisecond

// resetting are connections to one address.
type resetting struct {
	fd int
	// left are those whose clients have not answered yet.
	left map[pairOfPorts]Flow
}

// pairOfPorts is a client and the host's port.
type pairOfPorts struct {
	client netip.AddrPort
	port   uint16
}

// ResetClients ends the TCP connections of clients to addresses that are the
// host's still, that nobody leads elsewhere any more, and returns when all have
// answered, or have had the time to.
func (h *Host) ResetClients(flows []Flow) error {
	if len(flows) == 0 {
		return nil
	}
	return h.ns.Do(func() error {
		all := map[netip.Addr]*resetting{}
		var errs []error
		defer func() {
			for _, r := range all {
				unix.Close(r.fd)
			}
		}()
		for _, f := range flows {
			r, known := all[f.Host.Addr()]
			if !known {
				var err error
				if r, err = openResetting(f.Host.Addr()); err != nil {
					return fmt.Errorf("reset clients of %s: %w", f.Host.Addr(), err)
				}
				all[f.Host.Addr()] = r
			}
			r.left[pairOfPorts{f.Client, f.Host.Port()}] = f
		}
		began := time.Now()
		for _, until := range []time.Time{began.Add(resetPatience / 2), began.Add(resetPatience)} {
			for _, r := range all {
				errs = append(errs, r.ask())
			}
			for _, r := range all {
				errs = append(errs, r.await(until))
			}
		}
		return errors.Join(errs...)
	})
}

// openResetting opens a socket that gets a copy of every TCP segment for the
// address.
func openResetting(at netip.Addr) (*resetting, error) {
	family, level, free := unix.AF_INET6, unix.SOL_IPV6, unix.IPV6_FREEBIND
	if at.Is4() {
		family, level, free = unix.AF_INET, unix.SOL_IP, unix.IP_FREEBIND
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err != nil {
		return nil, fmt.Errorf("open a raw socket: %w", err)
	}
	// A local route makes an address of IPv6 none that can be bound.
	if err := errors.Join(unix.SetsockoptInt(fd, level, free, 1), unix.Bind(fd, sockaddr(netip.AddrPortFrom(at, 0)))); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &resetting{fd, map[pairOfPorts]Flow{}}, nil
}

// ask sends the clients that are left a segment that they answer.
func (r *resetting) ask() error {
	var errs []error
	for _, f := range r.left {
		errs = append(errs, unheard(sendSegment(f.Host, f.Client, tcpAck, rand.Uint32())))
	}
	return errors.Join(errs...)
}

// await reads the clients' answers until none is left or the time is over.
func (r *resetting) await(until time.Time) error {
	buf := make([]byte, 128)
	for len(r.left) > 0 {
		wait := time.Until(until)
		if wait <= 0 {
			return nil
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}, int(wait/time.Millisecond)+1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for clients' answers: %w", err)
		}
		n, from, err := unix.Recvfrom(r.fd, buf, 0)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("read clients' answers: %w", err)
		default:
			delete(r.left, whoAnswers(buf[:n], from))
		}
	}
	return nil
}

// whoAnswers reads a segment as a raw socket has it: in IPv4 with its IP header.
func whoAnswers(segment []byte, from unix.Sockaddr) (p pairOfPorts) {
	var client netip.Addr
	switch a := from.(type) {
	case *unix.SockaddrInet4:
		client = netip.AddrFrom4(a.Addr)
		if len(segment) > 0 {
			segment = segment[min(len(segment), int(segment[0]&0x0f)*4):]
		}
	case *unix.SockaddrInet6:
		client = netip.AddrFrom16(a.Addr)
	}
	if len(segment) < tcpHeader {
		return p
	}
	return pairOfPorts{netip.AddrPortFrom(client, binary.BigEndian.Uint16(segment)), binary.BigEndian.Uint16(segment[2:])}
}
