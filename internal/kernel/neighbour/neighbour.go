// Package neighbour asks the hosts on a link who of them has an address, and
// leaves alone what they know of their neighbours.
//
// Theory of operation. IPv4 is asked for by an ARP probe (RFC 5227, section
// 1.1), whose sender has no address, so that nobody learns one from it; who has
// the address answers to us alone. For IPv6 the question is a solicitation from
// an address that the link has in truth (RFC 4861, section 4.3). The one that
// looks for duplicates (RFC 4862, section 5.4.2), which is from nobody, would
// be answered to all hosts of the link, and they would take the address to be
// where the answer is from.
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

// Claim says that another than us has an address.
type Claim struct {
	Address netip.Addr
	By      net.HardwareAddr
	// Probing says that it only asks, as we do, whether anybody has it.
	Probing bool
}

// Asker asks for addresses of one family on one link.
type Asker struct {
	link *net.Interface
	conn *packet.Conn
	// from is what IPv6 is asked from; not valid for IPv4.
	from netip.Addr
}

// Open opens a socket on the link, which must be Ethernet, for IPv4 or IPv6, in
// the calling thread's namespace.
func Open(link *net.Interface, v4 bool) (*Asker, error) {
	a := &Asker{link: link}
	protocol, config := unix.ETH_P_ARP, &packet.Config{}
	if !v4 {
		var err error
		if a.from, err = ownAddress(link); err != nil {
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

// Close gives the socket up.
func (a *Asker) Close() error { return a.conn.Close() }

const (
	// again is how long after a question those are asked once more of whom nothing
	// is heard: a packet may be lost.
	again = 150 * time.Millisecond
	// lull is how long others may still answer once somebody has for each address.
	lull = 50 * time.Millisecond
)

// Ask asks for addresses of the socket's family, and returns who says that it
// has one, each once. It asks at least once, takes as long as its patience if
// nobody answers, and closes the socket if ctx ends before, which is no error.
func (a *Asker) Ask(ctx context.Context, of []netip.Addr, patience time.Duration) ([]Claim, error) {
	defer context.AfterFunc(ctx, func() { a.conn.Close() })()
	q := question{of: of}
	end := time.Now().Add(patience)
	for first := true; len(q.open()) > 0 && (first || time.Now().Before(end)); first = false {
		err := a.send(q.open())
		if err == nil {
			until := time.Now().Add(again)
			if end.Before(until) {
				until = end
			}
			err = a.hear(&q, until)
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("ask on %s who has an address: %w", a.link.Name, err)
		}
	}
	return q.claims, nil
}

func (a *Asker) send(of []netip.Addr) error {
	for _, address := range of {
		b, to, err := a.request(address)
		if err == nil {
			_, err = a.conn.WriteTo(b, &packet.Addr{HardwareAddr: to})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// request is the question for an address, and where it goes.
func (a *Asker) request(address netip.Addr) ([]byte, net.HardwareAddr, error) {
	if address.Is4() {
		return probe(a.link.HardwareAddr, address), broadcast, nil
	}
	return solicitation(a.link.HardwareAddr, a.from, address)
}

// hear collects claims until a time, or until nothing is open and others have
// had time to answer.
func (a *Asker) hear(q *question, until time.Time) error {
	for buf := make([]byte, 1500); ; {
		if err := a.conn.SetReadDeadline(until); err != nil {
			return err
		}
		n, from, err := a.conn.ReadFrom(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			n, from, err = a.waiting(buf)
		}
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return err
		}
		claim, ok := a.parse(buf[:n], from)
		if ok && q.add(claim) && len(q.open()) == 0 {
			if soon := time.Now().Add(lull); soon.Before(until) {
				until = soon
			}
		}
	}
}

// waiting reads what has come, however late it is: others have answered in time,
// and it is us who had much else to do. EAGAIN says that nothing has.
func (a *Asker) waiting(buf []byte) (n int, from net.Addr, err error) {
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

// question is what was asked, and heard so far.
type question struct {
	of     []netip.Addr
	claims []Claim
}

// add reports whether the claim is new, and of what was asked.
func (q *question) add(c Claim) bool {
	known := slices.ContainsFunc(q.claims, func(o Claim) bool {
		return o.Address == c.Address && o.Probing == c.Probing && slices.Equal(o.By, c.By)
	})
	if known || !slices.Contains(q.of, c.Address) {
		return false
	}
	q.claims = append(q.claims, c)
	return true
}

// open are the addresses that nobody has said to have.
func (q *question) open() []netip.Addr {
	return slices.DeleteFunc(slices.Clone(q.of), func(a netip.Addr) bool {
		return slices.ContainsFunc(q.claims, func(c Claim) bool { return c.Address == a && !c.Probing })
	})
}
