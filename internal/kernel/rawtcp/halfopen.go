package rawtcp

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/sockdiag"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Theory of operation. With direct forwarding a real server receives packets unchanged,
// addressed to the virtual address, in frames for its own hardware address. It may
// work at its own address and still drop such packets because it lacks the virtual
// address or a listener there. Therefore the check sends the same kind of packet:
// one TCP SYN for the virtual address, in a frame for the server's hardware
// address. Its source port is reserved by a bound socket. The SYN-ACK is received
// with a packet socket and answered with a reset, so that no half-open connection
// stays behind. The host's own TCP would send no reset for an address that is local
// or that it has no route to. If the virtual address is local, the host drops a packet
// from it as soon as it leaves the bridge, and a bridge whose frames pass iptables drops
// it earlier; so the socket receives at the bridge's port. A real server in tunnel mode
// is checked in the same way, with the SYN in a packet for the server's own address. If
// the host itself is the real server, it would not accept such a packet from itself. In
// that case the check searches for a listening socket.

// ErrNotVirtual means that a real server does not answer on the virtual address.
var ErrNotVirtual = errors.New("it does not answer on the virtual address")

// HalfOpen checks whether a real server accepts connections to a virtual address
// and port. The server must be the host itself or on one of its links. Returns
// ErrNotVirtual if the server refuses or does not answer until the context ends.
// Any other error means that the check was not possible.
func (h *Handle) HalfOpen(ctx context.Context, virtual netip.AddrPort, server netip.Addr) error {
	route, err := h.rtnl.RouteTo(rtnl.RouteQuery{To: server})
	if err != nil {
		return fmt.Errorf("find the route to %s: %w", server, err)
	}
	if route.Type == unix.RTN_LOCAL {
		return h.checkListener(virtual)
	}
	if route.Via.IsValid() {
		return fmt.Errorf("check %s: it is behind the router %s: direct forwarding needs the server "+
			"on a link of this host: use tunnel or nat", server, route.Via)
	}
	mac, err := h.hardware(ctx, route.Link, server)
	if err != nil {
		return fmt.Errorf("%w: %s", ErrNotVirtual, err)
	}
	var check *halfOpenCheck
	if err := h.ns.Do(func() (err error) {
		check, err = openHalfOpen(route, virtual)
		return err
	}); err != nil {
		return fmt.Errorf("open a connection to %s at %s: %w", virtual, server, err)
	}
	defer check.close()
	if port, err := h.rtnl.PortTo(check.link.Index, mac); err == nil && port != check.link.Index {
		if err := h.ns.Do(func() error { return check.receiveAt(port) }); err != nil {
			return fmt.Errorf("receive from %s at its port of %s: %w", server, route.Link, err)
		}
	}
	return check.try(ctx, func(segment []byte) error {
		_, err := check.conn.WriteTo(segment, &packet.Addr{HardwareAddr: mac})
		return err
	})
}

// checkListener returns ErrNotVirtual unless a socket on this host listens on the
// virtual address.
func (h *Handle) checkListener(virtual netip.AddrPort) error {
	listens, err := sockdiag.New(h.ns).ListensAt(virtual)
	if err != nil || listens {
		return err
	}
	return fmt.Errorf("%w %s: no socket on this host listens there", ErrNotVirtual, virtual)
}

// hardware returns a neighbour's hardware address. If it is not known, the kernel
// resolves it.
func (h *Handle) hardware(ctx context.Context, link string, of netip.Addr) (net.HardwareAddr, error) {
	const often = 5 * time.Millisecond
	on, err := h.rtnl.LinkByName("", link)
	if err != nil {
		return nil, err
	}
	for asked := false; ; asked = true {
		n, err := h.rtnl.Neighbour(on.Attrs().Index, of)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("find neighbour %s on %s: %w", of, link, err)
		}
		if err == nil && len(n.HardwareAddr) > 0 && n.State&(netlink.NUD_INCOMPLETE|netlink.NUD_FAILED) == 0 {
			return n.HardwareAddr, nil
		}
		if !asked {
			if err := h.ns.Do(func() error { return nudge(of) }); err != nil {
				return nil, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no neighbour on %s has the address %s", link, of)
		case <-time.After(often):
		}
	}
}

// nudge sends an empty datagram to the discard port (RFC 863), so that the kernel
// resolves the neighbour.
func nudge(to netip.Addr) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write(nil)
	return err
}

// halfOpenCheck is the state of one check.
type halfOpenCheck struct {
	// reserved is the socket that reserves the local port.
	reserved int
	link     *net.Interface
	// conn sends and receives on the link. If from is set, it receives in its place.
	conn, from *packet.Conn
	local      netip.AddrPort
	to         netip.AddrPort
	seq        uint32
}

func openHalfOpen(route rtnl.RouteFound, to netip.AddrPort) (*halfOpenCheck, error) {
	q := &halfOpenCheck{reserved: -1, to: to, seq: rand.Uint32()}
	var err error
	if q.link, err = net.InterfaceByName(route.Link); err != nil {
		return nil, err
	}
	family := unix.AF_INET6
	if to.Addr().Is4() {
		family = unix.AF_INET
	}
	if q.reserved, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, err
	}
	if err := unix.Bind(q.reserved, nlutil.Sockaddr(netip.AddrPortFrom(route.Src, 0))); err != nil {
		return nil, errors.Join(err, q.close())
	}
	name, err := unix.Getsockname(q.reserved)
	if err != nil {
		return nil, errors.Join(err, q.close())
	}
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		q.local = netip.AddrPortFrom(route.Src, uint16(a.Port))
	case *unix.SockaddrInet6:
		q.local = netip.AddrPortFrom(route.Src, uint16(a.Port))
	}
	if q.conn, err = q.listen(q.link, int(q.protocol())); err != nil {
		return nil, errors.Join(err, q.close())
	}
	return q, nil
}

// receiveAt receives at a port of the bridge. There a socket must be for all protocols: the bridge takes the frames
// before it gets to the others.
func (q *halfOpenCheck) receiveAt(port int) error {
	link, err := net.InterfaceByIndex(port)
	if err == nil {
		q.from, err = q.listen(link, unix.ETH_P_ALL)
	}
	return err
}

// listen opens a packet socket on a link.
func (q *halfOpenCheck) listen(link *net.Interface, protocol int) (*packet.Conn, error) {
	filter, err := bpf.Assemble(q.filter())
	if err != nil {
		return nil, err
	}
	conn, err := packet.Listen(link, packet.Datagram, protocol, &packet.Config{Filter: filter})
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w (root is needed)", err)
	}
	return conn, nil
}

// protocol returns the EtherType of the check's packets.
func (q *halfOpenCheck) protocol() uint32 {
	if q.to.Addr().Is4() {
		return unix.ETH_P_IP
	}
	return unix.ETH_P_IPV6
}

// filter accepts TCP segments from the virtual port to the local port. For IPv6 it
// expects no extension headers, which replies to a plain SYN do not have.
func (q *halfOpenCheck) filter() []bpf.Instruction {
	proto, ports := uint32(6), []bpf.Instruction{bpf.LoadAbsolute{Off: 40, Size: 4}}
	if q.to.Addr().Is4() {
		proto, ports = 9, []bpf.Instruction{bpf.LoadMemShift{Off: 0}, bpf.LoadIndirect{Off: 0, Size: 4}}
	}
	all := append([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtProto},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: q.protocol(), SkipTrue: 1}, bpf.RetConstant{},
		bpf.LoadAbsolute{Off: proto, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: 1}, bpf.RetConstant{},
	}, ports...)
	return append(all,
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(q.to.Port())<<16 | uint32(q.local.Port()), SkipTrue: 1},
		bpf.RetConstant{}, bpf.RetConstant{Val: 1 << 16})
}

func (q *halfOpenCheck) close() error {
	err := unix.Close(q.reserved)
	for _, c := range []*packet.Conn{q.conn, q.from} {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	return err
}

// synInterval is the time after which an unanswered SYN is sent again.
const synInterval = 300 * time.Millisecond

// try sends SYNs until one is answered or the context ends.
func (q *halfOpenCheck) try(ctx context.Context, send func(segment []byte) error) error {
	for last := false; !last && ctx.Err() == nil; {
		if err := send(q.segment(tcpSYN, q.seq)); err != nil {
			return fmt.Errorf("send a SYN for %s: %w", q.to, err)
		}
		until := time.Now().Add(synInterval)
		if end, bounded := ctx.Deadline(); bounded && !end.After(until) {
			until, last = end, true // the context may end a moment later
		}
		answered, err := q.answer(until)
		if answered && err == nil {
			err = send(q.segment(tcpRST, q.seq+1))
		}
		if answered || err != nil {
			return err
		}
	}
	return fmt.Errorf("%w %s: no answer", ErrNotVirtual, q.to)
}

// answer waits for the server's reply to a SYN until the deadline.
func (q *halfOpenCheck) answer(until time.Time) (answered bool, err error) {
	conn := cmp.Or(q.from, q.conn)
	if err := conn.SetReadDeadline(until); err != nil {
		return false, err
	}
	buf := make([]byte, 128)
	for {
		n, _, err := conn.ReadFrom(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("wait for an answer: %w", err)
		}
		switch flags, from, ack := q.parse(buf[:n]); {
		case from != q.to.Addr() || ack != q.seq+1:
		case flags&tcpRST != 0:
			return true, fmt.Errorf("%w %s: it refuses", ErrNotVirtual, q.to)
		case flags&(tcpSYN|tcpACK) == tcpSYN|tcpACK:
			return true, nil
		}
	}
}

// The flags of a TCP header (RFC 9293, section 3.1).
const (
	tcpSYN = 1 << 1
	tcpRST = 1 << 2
	tcpACK = 1 << 4
)

// parse reads an IP packet with a TCP header. If the packet is too short, from is
// not valid.
func (q *halfOpenCheck) parse(b []byte) (flags byte, from netip.Addr, ack uint32) {
	head := 40
	if q.to.Addr().Is4() && len(b) > 0 {
		head = int(b[0]&0x0f) * 4
	}
	if len(b) < head+20 {
		return 0, netip.Addr{}, 0
	}
	if from = netip.AddrFrom4([4]byte(b[12:16])); !q.to.Addr().Is4() {
		from = netip.AddrFrom16([16]byte(b[8:24]))
	}
	return b[head+13], from, binary.BigEndian.Uint32(b[head+8:])
}

// segment returns an IP packet with a TCP header and no data.
func (q *halfOpenCheck) segment(flags byte, seq uint32) []byte {
	tcp := make([]byte, 24)
	binary.BigEndian.PutUint16(tcp, q.local.Port())
	binary.BigEndian.PutUint16(tcp[2:], q.to.Port())
	binary.BigEndian.PutUint32(tcp[4:], seq)
	tcp[12], tcp[13] = 6<<4, flags // a header of six words
	binary.BigEndian.PutUint16(tcp[14:], 64240)
	copy(tcp[20:], []byte{2, 4, 5, 0xb4}) // the option MSS: 1460 bytes
	src, dst := q.local.Addr().AsSlice(), q.to.Addr().AsSlice()
	pseudo := append(append(append([]byte{}, src...), dst...), 0, unix.IPPROTO_TCP, 0, byte(len(tcp)))
	binary.BigEndian.PutUint16(tcp[16:], checksum(append(pseudo, tcp...)))
	if !q.to.Addr().Is4() {
		ip := []byte{6 << 4, 0, 0, 0, 0, byte(len(tcp)), unix.IPPROTO_TCP, 64}
		return append(append(append(ip, src...), dst...), tcp...)
	}
	ip := []byte{0x45, 0, 0, byte(20 + len(tcp)), 0, 0, 0x40, 0, 64, unix.IPPROTO_TCP, 0, 0}
	ip = append(append(ip, src...), dst...)
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	return append(ip, tcp...)
}

// checksum returns the checksum of RFC 1071. The number of bytes must be even.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
