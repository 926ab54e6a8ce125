package proxy

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// outlet sends datagrams to the target on a connected socket, or to a client on
// the listening socket.
type outlet struct {
	fd int
	to sockaddr // empty on a connected socket
	// sender is control data that names the local address to send from.
	sender    [senderRoom]byte
	senderLen int
	// plain is set after a segmented send (UDP_SEGMENT) has failed.
	plain bool
}

const (
	// segmentBytes limits the size of one segmented send, which must fit into
	// one IP packet.
	segmentBytes = 64000
	// segmentRoom holds control data with a 16-bit segment size.
	segmentRoom = 24
)

// parcels are the messages that a batch is sent as.
type parcels struct {
	hdrs     [datagrams]mmsghdr
	controls [datagrams][senderRoom + segmentRoom]byte
	n        int
}

// send sends the batch's datagrams [from, to). It returns the number of datagrams
// and of bytes sent. Datagrams that the kernel refuses are skipped.
func (b *batch) send(o *outlet, from, to int) (sent, bytes int) {
	b.pack(o, from, to)
	refused := false
	for i := 0; i < b.out.n; {
		n, e := sendBatch(o.fd, b.out.hdrs[i:b.out.n])
		if e == unix.ECONNREFUSED && !refused {
			// An ICMP error for an earlier datagram; this one was not sent.
			refused = true
			continue
		}
		refused = false
		if b.out.hdrs[i].Iovlen > 1 && (e == unix.EINVAL || e == unix.EMSGSIZE || e == unix.EIO) {
			// Larger than the route's MTU, or no offload on the link: send the
			// datagrams one by one from now on.
			o.plain = true
			n, more := b.send(o, from, to)
			return sent + n, bytes + more
		}
		if e != 0 {
			n = 1
		}
		for range n {
			count := int(b.out.hdrs[i].Iovlen)
			if e == 0 {
				sent += count
				bytes += b.size(from, from+count)
			}
			from += count
			i++
		}
	}
	return sent, bytes
}

// size returns the bytes of the datagrams [from, to).
func (b *batch) size(from, to int) int {
	sum := 0
	for i := from; i < to; i++ {
		sum += int(b.vecs[i].Len)
	}
	return sum
}

// pack makes messages of datagrams, one for each run of equal size: the kernel
// passes them through its stack as one packet and splits it at the end (UDP GSO,
// Linux 4.18). This costs much less than sending each datagram.
func (b *batch) pack(o *outlet, from, to int) {
	b.out.n = 0
	for from < to {
		count := 1
		if !o.plain {
			count = b.alike(from, to)
		}
		i := b.out.n
		h := unix.Msghdr{Iov: &b.vecs[from], Iovlen: uint64(count)}
		if o.to.len > 0 {
			h.Name, h.Namelen = &o.to.raw[0], o.to.len
		}
		control := append(b.out.controls[i][:0], o.sender[:o.senderLen]...)
		if count > 1 {
			control = appendSegment(control, uint16(b.vecs[from].Len))
		}
		if len(control) > 0 {
			h.Control, h.Controllen = &b.out.controls[i][0], uint64(len(control))
		}
		b.out.hdrs[i] = mmsghdr{Msghdr: h}
		b.out.n++
		from += count
	}
}

// alike counts the datagrams that can be segments of one send: of equal size,
// except that the last one may be shorter.
func (b *batch) alike(from, to int) int {
	size := b.vecs[from].Len
	sum, count := size, 1
	for i := from + 1; i < to && size > 0; i++ {
		n := b.vecs[i].Len
		if n == 0 || n > size || sum+n > segmentBytes {
			break
		}
		sum, count = sum+n, count+1
		if n < size {
			break
		}
	}
	return count
}

// appendSegment appends control data that sets the segment size.
func appendSegment(b []byte, size uint16) []byte {
	var data [8]byte
	binary.NativeEndian.PutUint16(data[:], size)
	return appendControl(b, unix.IPPROTO_UDP, unix.UDP_SEGMENT, data[:2])
}

// appendControl appends one control message, padded for another.
func appendControl(b []byte, level, kind uint32, data []byte) []byte {
	end := len(b) + unix.CmsgSpace(len(data))
	b = binary.NativeEndian.AppendUint64(b, uint64(unix.CmsgLen(len(data))))
	b = binary.NativeEndian.AppendUint32(b, level)
	b = binary.NativeEndian.AppendUint32(b, kind)
	b = append(b, data...)
	for len(b) < end {
		b = append(b, 0)
	}
	return b
}
