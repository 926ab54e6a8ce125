package datagram

import (
	"encoding/binary"
	"net"

	"golang.org/x/sys/unix"
)

// local is the local address that a datagram was sent to: the data of an in_pktinfo or
// in6_pktinfo (ip(7), ipv6(7)) without what varies from datagram to datagram. Its zero value
// means that the kernel chooses.
type local struct {
	level, kind int32
	data        [unix.SizeofInet6Pktinfo]byte
}

// controlRoom fits the control data of either.
const controlRoom = 64

// wantLocal makes the kernel report the local addresses of received datagrams.
func wantLocal(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		if failed != nil { // a socket of IPv4
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		}
	})
	if err == nil {
		err = failed
	}
	return err
}

// parseLocal reads the control data of a received datagram. Only packet information is
// enabled, so it is the only message.
func parseLocal(b []byte) (l local) {
	const head = unix.SizeofCmsghdr
	if len(b) < head+unix.SizeofInet4Pktinfo {
		return l
	}
	level, kind := int32(binary.NativeEndian.Uint32(b[8:])), binary.NativeEndian.Uint32(b[12:])
	data := b[head:]
	switch {
	case level == unix.IPPROTO_IP && kind == unix.IP_PKTINFO:
		l.level, l.kind = level, unix.IP_PKTINFO
		copy(l.data[4:8], data[4:8]) // ipi_spec_dst
	case level == unix.IPPROTO_IPV6 && kind == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
		l.level, l.kind = level, unix.IPV6_PKTINFO
		copy(l.data[:16], data)
		if data[0] == 0xfe && data[1]&0xc0 == 0x80 {
			copy(l.data[16:], data[16:unix.SizeofInet6Pktinfo]) // the interface of a link-local address
		}
	}
	return l
}

// control returns the control data for datagrams from the address.
func (l *local) control() []byte {
	size := unix.SizeofInet6Pktinfo
	switch l.kind {
	case 0:
		return nil
	case unix.IP_PKTINFO:
		size = unix.SizeofInet4Pktinfo
	}
	b := make([]byte, unix.CmsgSpace(size))
	binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(size)))
	binary.NativeEndian.PutUint32(b[8:], uint32(l.level))
	binary.NativeEndian.PutUint32(b[12:], uint32(l.kind))
	copy(b[unix.SizeofCmsghdr:], l.data[:size])
	return b
}
