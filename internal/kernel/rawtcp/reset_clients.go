package rawtcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/lock"

	"golang.org/x/sys/unix"
)

// Theory of operation. A client of a dead server, or of an address that the host
// is about to remove, would wait until its TCP times out. Only a reset with
// exactly the expected sequence number ends its connection (RFC 5961). Neither
// conntrack nor IPVS knows that number. But a client answers a segment outside of
// its window with the sequence number that it expects (RFC 9293, 3.10.7.4). So the
// host sends such a segment to each client, from the virtual address. The host's
// TCP gets the answer; it has no such connection and resets it.
//
//	host ── octet outside the window ────► client
//	host ◄── expected sequence number ──── client
//	host ── reset with that number ──────► client
//
// The segment has one octet of data, because a host answers segments without data
// at most twice per second (net.ipv4.tcp_invalid_ratelimit). The entries of
// conntrack and IPVS must be deleted before, or they forward the answer to the
// server. Clients that are still connecting get no segment: their next SYN begins
// a new flow.
//
// If a firewall drops segments outside the window, the client gets nothing: its
// connection is reset when it sends next.

const (
	// resetTimeout limits the wait for the clients' answers. After half of it the
	// segments without an answer are sent once more, because they may have been
	// lost.
	resetTimeout = 600 * time.Millisecond
	// resetBurst is the number of segments that are sent at once, and resetPause the
	// wait for answers after each burst, so that the answers do not overload the
	// host.
	resetBurst, resetPause = 100, 2 * time.Millisecond
	// mostResets limits the number of connections, and with it the time that a change
	// waits: about five seconds if no client answers. Connections beyond the limit are
	// reset when the client sends next.
	mostResets = 100_000
)

// resets are connections of clients that are to be reset.
type resets struct {
	// at are the addresses that the clients are connected to. sockets has one raw
	// socket for each, which gets the segments to that address.
	at      []netip.Addr
	sockets []unix.PollFd
	// left are the connections whose clients have not answered yet.
	left map[conntrack.Ends]bool
}

// ResetClients resets the TCP connections of clients to addresses that the host
// still has and that are no longer translated. It returns when all clients have
// answered or the timeout is over.
func (h *Handle) ResetClients(flows []conntrack.Flow) error {
	if len(flows) == 0 {
		return nil
	}
	lock.Outside("the clients of a service")
	asked := flows[:min(len(flows), mostResets)]
	r := resets{left: make(map[conntrack.Ends]bool, len(asked))}
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
		return errors.Join(r.ask(), r.listen(resetTimeout/2), r.ask(), r.listen(resetTimeout/2))
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

// hear opens a raw socket that gets a copy of every TCP segment to the address.
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
	// An IPv6 address that the host has only through a local route cannot be bound
	// without the option FREEBIND.
	return errors.Join(unix.SetsockoptInt(fd, level, free, 1),
		unix.Bind(fd, nlutil.Sockaddr(netip.AddrPortFrom(at, 0))))
}

// ask sends a segment outside the window to each client that has not answered yet.
func (r *resets) ask() error {
	var errs []error
	asked := 0
	for e := range r.left {
		if err := IgnoreUnreachable(sendSegment(e.Host, e.Client, flagAck, rand.Uint32(), 0)); err != nil {
			errs = append(errs, err)
		}
		if asked++; asked%resetBurst == 0 {
			errs = append(errs, r.listen(resetPause))
		}
	}
	return errors.Join(errs...)
}

// listen reads the clients' answers until all have answered or the timeout is
// over.
func (r *resets) listen(timeout time.Duration) error {
	for until := time.Now().Add(timeout); len(r.left) > 0; {
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

// read reads the answers that have arrived for an address.
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
			delete(r.left, segmentEnds(buf[:n], from, at))
		}
	}
	return nil
}

// segmentEnds returns the client and the host's address and port of a segment from
// the raw socket of an address. IPv4 segments begin with the IP header. The result
// is the zero value if the segment is too short.
func segmentEnds(segment []byte, from unix.Sockaddr, at netip.Addr) (e conntrack.Ends) {
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
	return conntrack.Ends{
		Client: netip.AddrPortFrom(client, binary.BigEndian.Uint16(segment)),
		Host:   netip.AddrPortFrom(at, binary.BigEndian.Uint16(segment[2:])),
	}
}
