package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"fairlead/internal/model"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Theory of operation. A real server to which packets are forwarded `direct`
// gets them as they are, for the virtual address, in frames for its own
// hardware address. It may be well at its own address and still drop those, for
// want of the virtual address or of a listener on it. So it is asked just so:
// one TCP SYN for the virtual address, from a port that a socket of ours holds,
// in a frame that we address. Its SYN-ACK is seen on the link, and answered by a
// reset, so that nothing is left half open: the host's own TCP would send none
// for an address that is its own, or that it knows no way to. One that gets them
// by `tunnel` is asked in the same way, in a packet for its own address. The host
// itself, which takes no such packet from itself, has to have a listener there.

// ErrNotVirtual says that a real server does not answer on the virtual address.
var ErrNotVirtual = errors.New("it does not answer on the virtual address")

// HalfOpen asks a real server for a connection to a virtual address and port.
// It returns nil if the server would take it, ErrNotVirtual if it refuses or
// says nothing until the context ends, and else why it could not be asked.
func (h *Host) HalfOpen(ctx context.Context, virtual netip.AddrPort, server netip.Addr) error {
	route, err := h.RouteTo(RouteQuery{To: server})
	if err != nil {
		return fmt.Errorf("find the way to %s: %w", server, err)
	}
	if route.Type == unix.RTN_LOCAL {
		return h.takes(virtual)
	}
	if route.Via.IsValid() {
		return fmt.Errorf("%s is behind the router %s: packets can be forwarded direct only on the server's own link", server, route.Via)
	}
	var ask *halfOpen
	if err := h.ns.Do(func() (err error) {
		ask, err = openHalf(route, virtual)
		return err
	}); err != nil {
		return fmt.Errorf("ask %s for a connection to %s: %w", server, virtual, err)
	}
	defer ask.close()
	mac, err := h.hardware(ctx, route.Link, server)
	if err != nil {
		return fmt.Errorf("%w: %s", ErrNotVirtual, err)
	}
	return ask.try(ctx, func(segment []byte) error {
		_, err := ask.conn.WriteTo(segment, &packet.Addr{HardwareAddr: mac})
		return err
	})
}

// takes says that nobody on the host itself listens on the virtual address.
func (h *Host) takes(virtual netip.AddrPort) error {
	sockets, err := h.boundTo(model.TCP, virtual.Port())
	if err != nil {
		return err
	}
	for _, s := range sockets {
		if s.state == stateListen && s.covers(virtual.Addr()) {
			return nil
		}
	}
	return fmt.Errorf("%w %s: nobody on this host listens there", ErrNotVirtual, virtual)
}

// hardware returns a neighbour's hardware address, and has the kernel ask for
// it if it is not known.
func (h *Host) hardware(ctx context.Context, link string, of netip.Addr) (net.HardwareAddr, error) {
	const often = 5 * time.Millisecond
	handle, err := h.at("")
	if err != nil {
		return nil, err
	}
	on, err := handle.LinkByName(link)
	if err != nil {
		return nil, err
	}
	family := unix.AF_INET6
	if of.Is4() {
		family = unix.AF_INET
	}
	for asked := false; ; asked = true {
		list, err := retry(func() ([]netlink.Neigh, error) { return handle.NeighList(on.Attrs().Index, family) })
		if err != nil {
			return nil, fmt.Errorf("list neighbours of %s: %w", link, err)
		}
		for _, n := range list {
			if a, ok := address(n.IP); ok && a == of && len(n.HardwareAddr) > 0 && n.State&(netlink.NUD_INCOMPLETE|netlink.NUD_FAILED) == 0 {
				return n.HardwareAddr, nil
			}
		}
		if !asked {
			if err := h.ns.Do(func() error { return nudge(of) }); err != nil {
				return nil, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("nobody on %s has the address %s", link, of)
		case <-time.After(often):
		}
	}
}

// nudge sends an empty datagram to the port that discards (RFC 863), so that
// the kernel looks for the neighbour.
func nudge(to netip.Addr) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write(nil)
	return err
}

// halfOpen is one question.
type halfOpen struct {
	inUse int
	conn  *packet.Conn
	local netip.AddrPort
	to    netip.AddrPort
	seq   uint32
}

func openHalf(route RouteFound, to netip.AddrPort) (*halfOpen, error) {
	q := &halfOpen{inUse: -1, to: to, seq: rand.Uint32()}
	link, err := net.InterfaceByName(route.Link)
	if err != nil {
		return nil, err
	}
	family, protocol := unix.AF_INET6, unix.ETH_P_IPV6
	if to.Addr().Is4() {
		family, protocol = unix.AF_INET, unix.ETH_P_IP
	}
	if q.inUse, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, err
	}
	if err := unix.Bind(q.inUse, sockaddr(netip.AddrPortFrom(route.Src, 0))); err != nil {
		return nil, errors.Join(err, q.close())
	}
	name, err := unix.Getsockname(q.inUse)
	if err != nil {
		return nil, errors.Join(err, q.close())
	}
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		q.local = netip.AddrPortFrom(route.Src, uint16(a.Port))
	case *unix.SockaddrInet6:
		q.local = netip.AddrPortFrom(route.Src, uint16(a.Port))
	}
	filter, err := bpf.Assemble(q.filter())
	if err != nil {
		return nil, errors.Join(err, q.close())
	}
	q.conn, err = packet.Listen(link, packet.Datagram, protocol, &packet.Config{Filter: filter})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a packet socket: %w (root is needed)", err), q.close())
	}
	return q, nil
}

// filter lets TCP from the virtual port to ours through. IPv6 has no extension
// headers in answers to a plain SYN.
func (q *halfOpen) filter() []bpf.Instruction {
	proto, ports := uint32(6), []bpf.Instruction{bpf.LoadAbsolute{Off: 40, Size: 4}}
	if q.to.Addr().Is4() {
		proto, ports = 9, []bpf.Instruction{bpf.LoadMemShift{Off: 0}, bpf.LoadIndirect{Off: 0, Size: 4}}
	}
	all := append([]bpf.Instruction{bpf.LoadAbsolute{Off: proto, Size: 1}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: 1}, bpf.RetConstant{}}, ports...)
	return append(all, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(q.to.Port())<<16 | uint32(q.local.Port()), SkipTrue: 1}, bpf.RetConstant{}, bpf.RetConstant{Val: 1 << 16})
}

func (q *halfOpen) close() error {
	err := unix.Close(q.inUse)
	if q.conn != nil {
		err = errors.Join(err, q.conn.Close())
	}
	return err
}

// again is how long an answer is waited for before the SYN is sent again.
const again = 300 * time.Millisecond

// try sends SYNs until one is answered or the context ends.
func (q *halfOpen) try(ctx context.Context, send func(segment []byte) error) error {
	for ctx.Err() == nil {
		if err := send(q.segment(tcpSYN, q.seq)); err != nil {
			return fmt.Errorf("send a SYN for %s: %w", q.to, err)
		}
		until := time.Now().Add(again)
		if end, bounded := ctx.Deadline(); bounded && end.Before(until) {
			until = end
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

// answer waits for what becomes of a SYN.
func (q *halfOpen) answer(until time.Time) (answered bool, err error) {
	if err := q.conn.SetReadDeadline(until); err != nil {
		return false, err
	}
	buf := make([]byte, 128)
	for {
		n, _, err := q.conn.ReadFrom(buf)
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

// parse reads an IP packet with a TCP header; from is not valid for any other.
func (q *halfOpen) parse(b []byte) (flags byte, from netip.Addr, ack uint32) {
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

// segment is a packet without data, from the IP header on.
func (q *halfOpen) segment(flags byte, seq uint32) []byte {
	tcp := make([]byte, 24)
	binary.BigEndian.PutUint16(tcp, q.local.Port())
	binary.BigEndian.PutUint16(tcp[2:], q.to.Port())
	binary.BigEndian.PutUint32(tcp[4:], seq)
	tcp[12], tcp[13] = 6<<4, flags // a header of six words
	binary.BigEndian.PutUint16(tcp[14:], 64240)
	copy(tcp[20:], []byte{2, 4, 5, 0xb4}) // segments of 1,460 bytes at most
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

// checksum is that of RFC 1071, over an even number of bytes.
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
