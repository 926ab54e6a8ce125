package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/sockdiag"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// endRounds limits how often the sockets without a port mapping are listed and
// ended. Usually the second list is empty. But one list may miss one of hundreds
// of sockets, and of several sockets with the same addresses and ports
// (SO_REUSEPORT) the kernel ends only the first that it finds. A socket that does
// not end is just being closed.
const endRounds = 10

// endLocal ends sockets of the host's processes that were redirected to an
// endpoint by a port mapping that no longer exists. The peers of TCP sockets get
// a reset. These sockets are connected to the endpoint directly, so removing the
// port mapping does not end them.
func (h *Host) endLocal(p *ebpf.Datapath) error {
	return h.ns.Do(func() error {
		for range endRounds {
			incomplete, err := p.Incomplete()
			if err != nil {
				return fmt.Errorf("list redirected sockets: %w", err)
			}
			if len(incomplete) == 0 {
				break
			}
			if err := destroy(incomplete); err != nil {
				return fmt.Errorf("end a redirected socket: %w", err)
			}
		}
		return nil
	})
}

// destroy ends the sockets that the requests name, as `ss --kill` does.
func destroy(requests []byte) error {
	s, err := nl.Subscribe(unix.NETLINK_INET_DIAG)
	if err != nil {
		return fmt.Errorf("open sock_diag: %w", err)
	}
	defer s.Close()
	for r := range slices.Chunk(requests, sockdiag.RequestLen) {
		req := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
		req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_INET_DIAG: {Socket: s}}
		req.AddData(sockdiag.Request(r))
		// ENOENT: the socket has already ended.
		if _, err := req.Execute(unix.NETLINK_INET_DIAG, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// resetFlow sends a TCP reset to both ends of a connection, each with the source
// address and port of the other end. The sequence number is the last one that the
// receiver has acknowledged. If more data was in flight, the receiver sends a
// challenge ACK (RFC 5961), and the host, which has no such socket, answers with a
// reset.
func resetFlow(f ebpf.Flow) error {
	return errors.Join(
		sendReset(f.Host, f.Client, f.Acknowledged[0]),
		sendReset(f.Seen, f.Endpoint, f.Acknowledged[1]))
}

// tcpHeader is the length in bytes of a TCP header without options, and tcpReset
// the flag RST (RFC 9293).
const (
	tcpHeader = 20
	tcpReset  = 0x04
)

// sendReset sends a TCP reset from an address that need not be the host's.
func sendReset(from, to netip.AddrPort, seq uint32) error {
	return sendSegment(from, to, tcpReset, seq)
}

// sendSegment sends a TCP segment with one flag and data from an address that
// need not be the host's.
func sendSegment(from, to netip.AddrPort, flag byte, seq uint32, data ...byte) error {
	packet := append(make([]byte, tcpHeader), data...)
	binary.BigEndian.PutUint16(packet[0:], from.Port())
	binary.BigEndian.PutUint16(packet[2:], to.Port())
	binary.BigEndian.PutUint32(packet[4:], seq)
	packet[12], packet[13] = tcpHeader/4<<4, flag
	binary.BigEndian.PutUint16(packet[16:], transportChecksum(from.Addr(), to.Addr(), packet))
	if from.Addr().Is4() {
		return sendRaw(unix.AF_INET, append(ipv4Header(from.Addr(), to.Addr(), len(packet)), packet...),
			&unix.SockaddrInet4{Addr: to.Addr().As4()})
	}
	return sendRaw(unix.AF_INET6, append(ipv6Header(from.Addr(), to.Addr(), len(packet)), packet...),
		&unix.SockaddrInet6{Addr: to.Addr().As16()})
}

// hopLimit is the default TTL (RFC 1700).
const hopLimit = 64

// ipv4Header returns a header without identification and checksum: the kernel sets
// them (raw(7)).
func ipv4Header(from, to netip.Addr, payload int) []byte {
	h := make([]byte, 20)
	h[0] = 4<<4 | 5
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+payload))
	h[8], h[9] = hopLimit, unix.IPPROTO_TCP
	copy(h[12:], from.AsSlice())
	copy(h[16:], to.AsSlice())
	return h
}

func ipv6Header(from, to netip.Addr, payload int) []byte {
	h := make([]byte, 40)
	h[0] = 6 << 4
	binary.BigEndian.PutUint16(h[4:], uint16(payload))
	h[6], h[7] = unix.IPPROTO_TCP, hopLimit
	copy(h[8:], from.AsSlice())
	copy(h[24:], to.AsSlice())
	return h
}

func sendRaw(family int, packet []byte, to unix.Sockaddr) error {
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("open a raw socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, packet, 0, to); err != nil {
		return fmt.Errorf("send a TCP segment: %w", err)
	}
	return nil
}

// transportChecksum is the Internet checksum (RFC 1071) over the pseudo
// header and the segment.
func transportChecksum(from, to netip.Addr, segment []byte) uint16 {
	sum := uint32(unix.IPPROTO_TCP) + uint32(len(segment))
	for _, part := range [][]byte{from.AsSlice(), to.AsSlice(), segment} {
		for i := 0; i+1 < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
