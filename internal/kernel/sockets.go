package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"fairlead/internal/kernel/steer"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attributes of linux/inet_diag.h and linux/sock_diag.h, which tell what eBPF
// programs have stored with a socket (Linux 5.6).
const (
	diagStoragesWanted = 2  // INET_DIAG_REQ_SK_BPF_STORAGES
	diagStorageMap     = 1  // SK_DIAG_BPF_STORAGE_REQ_MAP_FD
	diagStorages       = 20 // INET_DIAG_SK_BPF_STORAGES
	diagStorage        = 1  // SK_DIAG_BPF_STORAGE
	diagStorageValue   = 3  // SK_DIAG_BPF_STORAGE_MAP_VALUE
)

// diagID is where struct inet_diag_msg and inet_diag_req_v2 hold the struct
// inet_diag_sockid that names a socket, and how long that is.
const (
	diagIDInMessage = 4
	diagIDInRequest = 8
	diagIDLen       = 48
)

// endLocal ends the TCP sockets of the host's own processes that were led to a
// lead that is gone, and resets their peers: they speak to the endpoint
// directly, so nothing else would ever end them. What programs have stored with
// a UDP socket, Linux does not list: such a socket stays led until it is closed.
func (h *Host) endLocal(p *steer.Plane, gone goneLeads) error {
	return h.ns.Do(func() error {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			sockets, err := retry(func() ([][]byte, error) { return dumpDialled(p, family) })
			if err != nil {
				return fmt.Errorf("list sockets that were led: %w", err)
			}
			for _, s := range sockets {
				if !wentBy(s, family, p.Table(), gone) {
					continue
				}
				if err := destroy(s, family); err != nil {
					return fmt.Errorf("end a socket that was led to an endpoint: %w", err)
				}
			}
		}
		return nil
	})
}

// dumpDialled lists the TCP sockets of the calling thread's namespace, each with
// what the map of dialled addresses holds for it.
func dumpDialled(p *steer.Plane, family uint8) ([][]byte, error) {
	ask := make(diagRequest, diagRequestLen)
	ask[0], ask[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(ask[4:], ^uint32(1<<stateListen))
	storages := nl.NewRtAttr(diagStoragesWanted, nil)
	storages.AddRtAttr(diagStorageMap, nl.Uint32Attr(uint32(p.Dialled().FD())))
	req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	req.AddData(ask)
	req.AddData(storages)
	return req.Execute(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY)
}

// wentBy reports whether the socket speaks to an endpoint to which a lead
// that is gone has led it.
func wentBy(m []byte, family uint8, t *steer.Table, gone goneLeads) bool {
	if len(m) < diagMessageLen {
		return false
	}
	peer := netip.AddrPortFrom(netip.AddrFrom16([16]byte(m[24:40])).Unmap(), binary.BigEndian.Uint16(m[6:]))
	if family == unix.AF_INET {
		peer = netip.AddrPortFrom(netip.AddrFrom4([4]byte(m[24:28])), peer.Port())
	}
	for _, d := range steer.ParseDialled(storedValue(m[diagMessageLen:])) {
		if _, led := gone.of(t, steer.Flow{Host: d.Host, Endpoint: d.To}); led && d.To == peer {
			return true
		}
	}
	return false
}

// storedValue returns the value that the socket has in the map asked for.
func storedValue(attributes []byte) []byte {
	for _, kind := range []uint16{diagStorages, diagStorage, diagStorageValue} {
		attributes = attribute(attributes, kind)
	}
	return attributes
}

// destroy ends a socket as `ss --kill` does.
func destroy(m []byte, family uint8) error {
	ask := make(diagRequest, diagRequestLen)
	ask[0], ask[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(ask[4:], ^uint32(0))
	copy(ask[diagIDInRequest:], m[diagIDInMessage:diagIDInMessage+diagIDLen])
	req := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
	req.AddData(ask)
	_, err := req.Execute(unix.NETLINK_INET_DIAG, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // it has ended
	}
	return err
}

// resetFlow sends each end of a connection the reset that the other would
// send: with the sequence number that it has acknowledged last. Should more
// have been under way, the end asks back (RFC 5961), and the host, which has
// no such socket, resets it.
func resetFlow(f steer.Flow) error {
	return errors.Join(
		sendReset(f.Host, f.Client, f.Acknowledged[0]),
		sendReset(f.Seen, f.Endpoint, f.Acknowledged[1]))
}

// tcpHeader is the length in bytes of a TCP header without options, and
// tcpReset its flag (RFC 9293).
const (
	tcpHeader = 20
	tcpReset  = 0x04
)

// sendReset sends a TCP reset from an address that need not be the host's.
func sendReset(from, to netip.AddrPort, seq uint32) error {
	packet := make([]byte, tcpHeader)
	binary.BigEndian.PutUint16(packet[0:], from.Port())
	binary.BigEndian.PutUint16(packet[2:], to.Port())
	binary.BigEndian.PutUint32(packet[4:], seq)
	packet[12], packet[13] = tcpHeader/4<<4, tcpReset
	binary.BigEndian.PutUint16(packet[16:], transportChecksum(from.Addr(), to.Addr(), packet))
	if from.Addr().Is4() {
		return sendRaw(unix.AF_INET, append(ipv4Header(from.Addr(), to.Addr(), len(packet)), packet...),
			&unix.SockaddrInet4{Addr: to.Addr().As4()})
	}
	return sendRaw(unix.AF_INET6, append(ipv6Header(from.Addr(), to.Addr(), len(packet)), packet...),
		&unix.SockaddrInet6{Addr: to.Addr().As16()})
}

// hopLimit is what hosts send with by default (RFC 1700).
const hopLimit = 64

// ipv4Header leaves the identification and the checksum to the kernel, as
// raw(7) says.
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
		return fmt.Errorf("open a raw socket for a reset: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, packet, 0, to); err != nil {
		return fmt.Errorf("send a reset: %w", err)
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
