package proxy

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// datagrams is how many are received at once.
	datagrams = 32
	// datagramRoom holds the largest datagram, 65,507 bytes over IPv4 and
	// 65,527 over IPv6. Memory is used only as far as datagrams fill it.
	datagramRoom = 1 << 16
	// senderRoom holds control data with an in6_pktinfo.
	senderRoom = 40
)

// localAddr is the local address that a datagram was sent to: an in_pktinfo
// or in6_pktinfo without what varies from packet to packet. It is zero on
// sockets that are bound to one address.
type localAddr struct {
	family  int32
	ifindex uint32 // IPv6 link-local addresses only
	addr    [16]byte
}

// control writes the address as control data for sending, and returns its
// length.
func (l *localAddr) control(b []byte) int {
	if l.family == 0 {
		return 0
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	data := b[unix.CmsgLen(0):]
	if l.family == unix.AF_INET {
		h.Level, h.Type = unix.IPPROTO_IP, unix.IP_PKTINFO
		h.SetLen(unix.CmsgLen(unix.SizeofInet4Pktinfo))
		copy(data[4:], l.addr[:4]) // ipi_spec_dst
		return unix.CmsgSpace(unix.SizeofInet4Pktinfo)
	}
	h.Level, h.Type = unix.IPPROTO_IPV6, unix.IPV6_PKTINFO
	h.SetLen(unix.CmsgLen(unix.SizeofInet6Pktinfo))
	copy(data, l.addr[:])
	binary.NativeEndian.PutUint32(data[16:], l.ifindex)
	return unix.CmsgSpace(unix.SizeofInet6Pktinfo)
}

// parseLocal reads the control data of a received datagram. Only packet
// information is asked for, so it comes first and alone.
func parseLocal(b []byte) localAddr {
	var l localAddr
	if len(b) < unix.CmsgLen(unix.SizeofInet4Pktinfo) {
		return l
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	data := b[unix.CmsgLen(0):]
	switch {
	case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO:
		l.family = unix.AF_INET
		copy(l.addr[:], data[4:8]) // ipi_spec_dst
	case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
		l.family = unix.AF_INET6
		copy(l.addr[:], data[:16])
		if l.addr[0] == 0xfe && l.addr[1]&0xc0 == 0x80 {
			l.ifindex = binary.NativeEndian.Uint32(data[16:])
		}
	}
	return l
}

// prepareUDP sets a new socket's options before it is bound.
func prepareUDP(fd int, k socketKey, listener bool) error {
	size := 0 // see deafen
	if listener {
		size = queueBytes
	}
	if e := setOption(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size); e != 0 {
		return e
	}
	if !k.wildcard() {
		return nil
	}
	level, name := unix.IPPROTO_IP, unix.IP_PKTINFO
	if k.addr.Addr().Is6() {
		level, name = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	}
	if e := setOption(fd, level, name, 1); e != 0 {
		return e
	}
	return nil
}

// batch is the room for one recvmmsg, which sendmmsg then sends from.
type batch struct {
	hdrs     [datagrams]mmsghdr
	vecs     [datagrams]unix.Iovec
	names    [datagrams]sockaddr
	controls [datagrams][senderRoom]byte
	flows    [datagrams]*flow
	data     []byte
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

// send sends datagrams from to the end of run; what the kernel refuses is
// skipped. An earlier ICMP error is reported instead of sending, so each
// datagram gets a second try.
func (b *batch) send(fd, from, to int) (sent, bytes int) {
	for tried := false; from < to; {
		n, e := sendBatch(fd, b.hdrs[from:to])
		switch {
		case e == 0:
			for i := range n {
				bytes += int(b.vecs[from+i].Len)
			}
			sent += n
			from += n
			tried = false
		case e == unix.ECONNREFUSED && !tried:
			tried = true
		default:
			from++
			tried = false
		}
	}
	return sent, bytes
}

// receive leads clients' datagrams to their flows.
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
		h.Name, h.Namelen, h.Control, h.Controllen = nil, 0, nil, 0
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
			sent, bytes := b.send(f.fd, from, to)
			w.counts.datagramsIn.Add(uint64(sent))
			w.counts.bytesIn.Add(uint64(bytes))
		}
		from = to
	}
	clear(b.flows[:n])
}

// ready leads the target's datagrams back to the client. An error that ICMP
// reported is taken by the receive call, and the flow goes on.
func (f *flow) ready(w *worker, _ uint32, _ direction) {
	b := w.datagrams()
	n := b.receive(f.fd, false)
	if n == 0 {
		return
	}
	for i := range n {
		h := &b.hdrs[i]
		h.Name, h.Namelen = &f.key.client.raw[0], f.key.client.len
		if f.senderLen > 0 {
			h.Control, h.Controllen = &f.sender[0], uint64(f.senderLen)
		}
	}
	w.flows.touch(f, w.now(), true)
	sent, bytes := b.send(f.key.socket.fd, 0, n)
	w.counts.datagramsOut.Add(uint64(sent))
	w.counts.bytesOut.Add(uint64(bytes))
}
