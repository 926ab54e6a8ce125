// Package neighbour finds out which hosts on a link have an address, without
// changing the neighbour tables of other hosts.
//
// Theory of operation. For IPv4 it sends an ARP probe (RFC 5227, section 1.1). A
// probe has no sender address, so that no host learns one from it. The host that
// has the address answers to the sender only. For IPv6 it sends a solicitation
// from an address that the link has (RFC 4861, section 4.3). The solicitation of
// duplicate address detection (RFC 4862, section 5.4.2) would not do: it is from
// the unspecified address, so that the answer goes to all hosts on the link, and
// they would update their neighbour tables from it.
package neighbour

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Claim says that another host has an address or probes for it.
type Claim struct {
	Address netip.Addr
	By      net.HardwareAddr
	// Probing says that the host does not have the address, but sends probes for it
	// too.
	Probing bool
}

// Asker sends requests for addresses of one family on one link. It is not safe for
// concurrent use.
type Asker struct {
	link *net.Interface
	conn *packet.Conn
	// from is the source address of IPv6 requests; invalid for IPv4.
	from netip.Addr
}

// Open opens a packet socket for IPv4 or IPv6 on the link, which must be an
// Ethernet link in the calling thread's namespace. It needs root.
func Open(link *net.Interface, v4 bool) (*Asker, error) {
	a := &Asker{link: link}
	protocol, config := unix.ETH_P_ARP, &packet.Config{}
	if !v4 {
		var err error
		if a.from, err = linkLocalAddress(link); err != nil {
			return nil, err
		}
		protocol = unix.ETH_P_IPV6
		if config.Filter, err = bpf.Assemble(advertisements); err != nil {
			return nil, err
		}
	}
	var err error
	if a.conn, err = packet.Listen(link, packet.Datagram, protocol, config); err != nil {
		return nil, fmt.Errorf("open a packet socket: %w (root is needed)", err)
	}
	return a, nil
}

// Close closes the socket.
func (a *Asker) Close() error { return a.conn.Close() }

const (
	// resendAfter is the time after which requests without an answer are sent again,
	// because packets may have been lost.
	resendAfter = 150 * time.Millisecond
	// moreAnswers is how long further hosts may answer after each address has an
	// answer.
	moreAnswers = 50 * time.Millisecond
)

// Ask sends requests for addresses of the socket's family, and returns each claim
// once. It sends at least one request per address, and waits until the timeout if
// an address has no answer. If ctx ends before, it closes the socket and returns
// the claims so far without an error. It returns an error beside the claims if the host itself has dropped the last
// requests.
func (a *Asker) Ask(ctx context.Context, addresses []netip.Addr, timeout time.Duration) ([]Claim, error) {
	defer context.AfterFunc(ctx, func() { a.conn.Close() })()
	q := question{addresses: addresses}
	end := time.Now().Add(timeout)
	dropped := false
	for first := true; len(q.open()) > 0 && (first || time.Now().Before(end)); first = false {
		var err error
		if dropped, err = a.send(q.open()); err == nil {
			until := time.Now().Add(resendAfter)
			if end.Before(until) {
				until = end
			}
			err = a.hear(&q, until)
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("find owners of addresses on %s: %w", a.link.Name, err)
		}
	}
	if dropped && len(q.open()) > 0 {
		return q.claims, fmt.Errorf("find owners of addresses on %s: this host drops its own requests, because of a tc or nftables "+
			"rule at the link's egress or a full queue: let ARP and Neighbor Discovery pass there", a.link.Name)
	}
	return q.claims, nil
}

// send sends a request for each address. dropped is true if this host has dropped one: a rule at the link's egress, or a
// full queue, makes the kernel report ENOBUFS (net_xmit_errno).
func (a *Asker) send(addresses []netip.Addr) (dropped bool, err error) {
	for _, address := range addresses {
		b, to, err := a.request(address)
		if err == nil {
			_, err = a.conn.WriteTo(b, &packet.Addr{HardwareAddr: to})
		}
		switch {
		case errors.Is(err, unix.ENOBUFS):
			dropped = true
		case err != nil:
			return dropped, err
		}
	}
	return dropped, nil
}

// request returns the request for an address, and its destination on the link.
func (a *Asker) request(address netip.Addr) ([]byte, net.HardwareAddr, error) {
	if address.Is4() {
		return probe(a.link.HardwareAddr, address), broadcast, nil
	}
	return solicitation(a.link.HardwareAddr, a.from, address)
}

// hear collects claims until the given time, or until each address has a claim
// and moreAnswers is over.
func (a *Asker) hear(q *question, until time.Time) error {
	for buf := make([]byte, 1500); ; {
		if err := a.conn.SetReadDeadline(until); err != nil {
			return err
		}
		n, from, err := a.conn.ReadFrom(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			n, from, err = a.readPending(buf)
		}
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return err
		}
		claim, ok := a.parse(buf[:n], from)
		if ok && q.add(claim) && len(q.open()) == 0 {
			if soon := time.Now().Add(moreAnswers); soon.Before(until) {
				until = soon
			}
		}
	}
}

// readPending reads a packet that has already arrived, although the deadline is
// over: the other host may have answered in time while this process was delayed.
// It returns EAGAIN if there is none.
func (a *Asker) readPending(buf []byte) (n int, from net.Addr, err error) {
	raw, err := a.conn.SyscallConn()
	if err == nil {
		err = a.conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return 0, nil, err
	}
	var sender unix.Sockaddr
	failed := raw.Read(func(fd uintptr) bool {
		n, sender, err = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
		return true
	})
	if link, is := sender.(*unix.SockaddrLinklayer); is {
		from = &packet.Addr{HardwareAddr: link.Addr[:link.Halen]}
	}
	return n, from, errors.Join(failed, err)
}

func (a *Asker) parse(b []byte, from net.Addr) (c Claim, ok bool) {
	if a.from.IsValid() {
		c, ok = advertised(b, from)
	} else {
		c, ok = claimed(b)
	}
	return c, ok && !slices.Equal(c.By, a.link.HardwareAddr)
}

// question has the requested addresses and the claims so far.
type question struct {
	addresses []netip.Addr
	claims    []Claim
}

// add adds the claim, and reports whether it is new and about a requested address.
func (q *question) add(c Claim) bool {
	known := slices.ContainsFunc(q.claims, func(o Claim) bool {
		return o.Address == c.Address && o.Probing == c.Probing && slices.Equal(o.By, c.By)
	})
	if known || !slices.Contains(q.addresses, c.Address) {
		return false
	}
	q.claims = append(q.claims, c)
	return true
}

// open returns the addresses that no host has claimed to have.
func (q *question) open() []netip.Addr {
	return slices.DeleteFunc(slices.Clone(q.addresses), func(a netip.Addr) bool {
		return slices.ContainsFunc(q.claims, func(c Claim) bool { return c.Address == a && !c.Probing })
	})
}
