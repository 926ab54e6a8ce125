package proxy

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

const (
	// datagrams is how many are received at once.
	datagrams = 32
	// datagramRoom fits the largest datagram, 65,507 bytes over IPv4 and
	// 65,527 over IPv6. Memory is used only as far as datagrams fill it.
	datagramRoom = 1 << 16
	// senderRoom fits control data with an in6_pktinfo.
	senderRoom = 40
)

// localAddr is the local address that a datagram was sent to: an in_pktinfo
// or in6_pktinfo without the fields that vary from packet to packet. It is zero
// on sockets that are bound to one address.
type localAddr struct {
	family  int32
	ifindex uint32 // IPv6 link-local addresses only
	addr    [16]byte
}

// appendTo appends the address as control data for sending.
func (l *localAddr) appendTo(b []byte) []byte {
	var data [unix.SizeofInet6Pktinfo]byte
	switch l.family {
	case unix.AF_INET:
		copy(data[4:8], l.addr[:4]) // ipi_spec_dst
		return appendControl(b, unix.IPPROTO_IP, unix.IP_PKTINFO, data[:unix.SizeofInet4Pktinfo])
	case unix.AF_INET6:
		copy(data[:16], l.addr[:])
		binary.NativeEndian.PutUint32(data[16:], l.ifindex)
		return appendControl(b, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, data[:])
	}
	return b
}

// parseLocal reads the control data of a received datagram. Only packet
// information is enabled, so it is the only message.
func parseLocal(b []byte) localAddr {
	var l localAddr
	if len(b) < unix.CmsgLen(unix.SizeofInet4Pktinfo) {
		return l
	}
	level, kind := binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint32(b[12:])
	data := b[unix.CmsgLen(0):]
	switch {
	case level == unix.IPPROTO_IP && kind == unix.IP_PKTINFO:
		l.family = unix.AF_INET
		copy(l.addr[:], data[4:8]) // ipi_spec_dst
	case level == unix.IPPROTO_IPV6 && kind == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
		l.family = unix.AF_INET6
		copy(l.addr[:], data[:16])
		if l.addr[0] == 0xfe && l.addr[1]&0xc0 == 0x80 {
			l.ifindex = binary.NativeEndian.Uint32(data[16:])
		}
	}
	return l
}

// prepareUDP sets a new socket's options before it is bound.
func prepareUDP(fd int, k socketKey, listener bool) unix.Errno {
	size := 0 // see limitQueue
	if listener {
		size = queueBytes
	}
	e := setOption(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size)
	if e != 0 || !k.wildcard() {
		return e
	}
	if !k.addr.Addr().Is4() {
		return setOption(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	}
	return setOption(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
}

// batch has the buffers for one recvmmsg, and for sending its datagrams.
type batch struct {
	hdrs     [datagrams]mmsghdr
	vecs     [datagrams]unix.Iovec
	names    [datagrams]sockaddr
	controls [datagrams][senderRoom]byte
	flows    [datagrams]*flow
	data     []byte
	out      parcels
}

func (w *worker) datagrams() *batch {
	if w.batch == nil {
		w.batch = &batch{data: make([]byte, datagrams*datagramRoom)}
	}
	return w.batch
}

// receive reads datagrams, with senders and control data if named.
func (b *batch) receive(fd int, named bool) int {
	for i := range b.hdrs {
		b.vecs[i] = unix.Iovec{Base: &b.data[i*datagramRoom], Len: datagramRoom}
		h := unix.Msghdr{Iov: &b.vecs[i], Iovlen: 1}
		if named {
			b.names[i] = sockaddr{}
			h.Name, h.Namelen = &b.names[i].raw[0], uint32(len(b.names[i].raw))
			h.Control, h.Controllen = &b.controls[i][0], senderRoom
		}
		b.hdrs[i] = mmsghdr{Msghdr: h}
	}
	n, e := receiveBatch(fd, b.hdrs[:])
	if e != 0 {
		return 0
	}
	for i := range n {
		b.vecs[i].SetLen(int(b.hdrs[i].n))
	}
	return n
}

// receive forwards clients' datagrams through their flows.
func (s *socket) receive(w *worker) {
	b := w.datagrams()
	n := b.receive(s.fd, true)
	if n == 0 {
		return
	}
	for i := range n {
		h := &b.hdrs[i]
		b.names[i].len = h.Namelen
		key := flowKey{s, b.names[i], parseLocal(b.controls[i][:h.Controllen])}
		b.flows[i] = w.flows.get(w, key)
	}
	now := w.now()
	for from := 0; from < n; {
		f := b.flows[from]
		to := from + 1
		for to < n && b.flows[to] == f {
			to++
		}
		if f != nil && w.flows.flows[f.key] == f {
			w.flows.touch(f, now, false)
			sent, bytes := b.send(&f.in, from, to)
			w.sent(f.group, inward, sent, bytes)
		}
		from = to
	}
	clear(b.flows[:n])
}

// ready forwards the target's datagrams to the client. An error that ICMP
// reported is consumed by the receive call, and the flow continues.
func (f *flow) ready(w *worker, _ uint32, _ direction) {
	b := w.datagrams()
	n := b.receive(f.in.fd, false)
	if n == 0 {
		return
	}
	w.flows.touch(f, w.now(), true)
	sent, bytes := b.send(&f.out, 0, n)
	w.sent(f.group, outward, sent, bytes)
}
