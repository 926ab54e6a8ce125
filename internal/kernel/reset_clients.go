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

// Theory of operation. Who waits for a server that has died, or for an address of
// the host's that is about to go, would wait until its TCP gives up. Only a reset
// with the very sequence number that it expects ends the connection (RFC 5961),
// and neither conntrack nor IPVS tells it. But whoever gets a segment that cannot
// be the next answers by one that says what it expects (RFC 9293, 3.10.7.4). So
// each client is sent such a segment, in the name of the virtual address, and its
// answer meets the host's own TCP, which has no such connection and resets it.
//
//	host ── an octet out of the window ──► client
//	host ◄── what it expects ───────────── client
//	host ── reset with that number ──────► client
//
// The segment has an octet, since a host answers one without any twice a second at
// most (net.ipv4.tcp_invalid_ratelimit). Conntrack and IPVS must have forgotten the
// flow, or the answer goes where the flow went. A client that is still dialling is
// not asked: its next SYN begins anew.
//
// A firewall on the way that drops what is out of the window keeps a client from
// hearing of it: that one is reset when it sends next.

const (
	// resetPatience bounds how long clients' answers are waited for; a segment that
	// may have been lost is sent once more after half of it.
	resetPatience = 600 * time.Millisecond
	// resetBurst is how many are asked at once, and resetPause how long their
	// answers are waited for before the next are: so these never outrun the host.
	resetBurst, resetPause = 100, 2 * time.Millisecond
	// mostResets bounds how many are asked, and so how long it takes, while the next
	// change waits: about five seconds, where nobody answers. What is more is reset
	// when it sends next.
	mostResets = 100_000
)

// resets are connections of clients that are to end.
type resets struct {
	// at are the addresses that clients have dialled, and sockets the raw ones that
	// hear what is said to each.
	at      []netip.Addr
	sockets []unix.PollFd
	// left are those whose clients have not answered yet.
	left map[Ends]bool
}

// ResetClients ends the TCP connections of clients to addresses that are the
// host's still, that nobody leads elsewhere any more, and returns when all have
// answered, or have had the time to.
func (h *Host) ResetClients(flows []Flow) error {
	if len(flows) == 0 {
		return nil
	}
	asked := flows[:min(len(flows), mostResets)]
	r := resets{left: make(map[Ends]bool, len(asked))}
	addresses := map[netip.Addr]bool{}
	for _, f := range asked {
		r.left[f.Ends()] = true
		addresses[f.Host.Addr()] = true
	}
	err := h.ns.Do(func() error {
		defer r.close()
		for at := range addresses {
			if err := r.hear(at); err != nil {
				return fmt.Errorf("reset clients of %s: %w", at, err)
			}
		}
		return errors.Join(r.ask(), r.listen(resetPatience/2), r.ask(), r.listen(resetPatience/2))
	})
	for _, f := range flows[len(asked):] {
		r.left[f.Ends()] = true
	}
	h.ended.add(flows, r.left)
	return err
}

func (r *resets) close() {
	for _, s := range r.sockets {
		unix.Close(int(s.Fd))
	}
}

// hear opens a socket that gets a copy of every TCP segment for the address.
func (r *resets) hear(at netip.Addr) error {
	family, level, free := unix.AF_INET6, unix.SOL_IPV6, unix.IPV6_FREEBIND
	if at.Is4() {
		family, level, free = unix.AF_INET, unix.SOL_IP, unix.IP_FREEBIND
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err != nil {
		return fmt.Errorf("open a raw socket: %w", err)
	}
	r.at, r.sockets = append(r.at, at), append(r.sockets, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	// A local route makes an address of IPv6 none that can be bound.
	return errors.Join(unix.SetsockoptInt(fd, level, free, 1), unix.Bind(fd, sockaddr(netip.AddrPortFrom(at, 0))))
}

// ask sends the clients that are left a segment that they answer.
func (r *resets) ask() error {
	var errs []error
	asked := 0
	for e := range r.left {
		if err := ignoreUnreachable(sendSegment(e.Host, e.Client, tcpAck, rand.Uint32(), 0)); err != nil {
			errs = append(errs, err)
		}
		if asked++; asked%resetBurst == 0 {
			errs = append(errs, r.listen(resetPause))
		}
	}
	return errors.Join(errs...)
}

// listen reads the clients' answers until none is left or the time is over.
func (r *resets) listen(patience time.Duration) error {
	for until := time.Now().Add(patience); len(r.left) > 0; {
		wait := time.Until(until)
		if wait <= 0 {
			return nil
		}
		if _, err := unix.Poll(r.sockets, int(wait/time.Millisecond)+1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for clients' answers: %w", err)
		}
		for i, s := range r.sockets {
			if s.Revents == 0 {
				continue
			}
			if err := r.read(int(s.Fd), r.at[i]); err != nil {
				return fmt.Errorf("read clients' answers: %w", err)
			}
		}
	}
	return nil
}

// read takes answers that have come for an address.
func (r *resets) read(fd int, at netip.Addr) error {
	buf := make([]byte, 128)
	for range resetBurst {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		default:
			delete(r.left, whoAnswers(buf[:n], from, at))
		}
	}
	return nil
}

// whoAnswers reads a segment as the raw socket of an address has it: in IPv4 with
// its IP header.
func whoAnswers(segment []byte, from unix.Sockaddr, at netip.Addr) (e Ends) {
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
		return e
	}
	return Ends{netip.AddrPortFrom(client, binary.BigEndian.Uint16(segment)), netip.AddrPortFrom(at, binary.BigEndian.Uint16(segment[2:]))}
}
