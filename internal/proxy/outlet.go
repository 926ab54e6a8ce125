package proxy

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// outlet is where datagrams leave: towards the target on a connected socket,
// or towards a client on the listening socket.
type outlet struct {
	fd int
	to sockaddr // of no length on a connected socket
	// sender is control data that names the local address to send from.
	sender    [senderRoom]byte
	senderLen int
	// plain: the way does not take segmented sends.
	plain bool
}

const (
	// segmentBytes bounds the datagrams of one segmented send; together
	// they have to be shorter than one IP packet can be.
	segmentBytes = 64000
	// segmentRoom holds control data with a 16-bit segment size.
	segmentRoom = 24
)

// parcels are the sends that a batch is made into.
type parcels struct {
	hdrs     [datagrams]mmsghdr
	controls [datagrams][senderRoom + segmentRoom]byte
	n        int
}

// send sends the batch's datagrams from up to to, and returns how many and
// how many bytes went. What the kernel refuses is skipped, as UDP may.
func (b *batch) send(o *outlet, from, to int) (sent, bytes int) {
	b.pack(o, from, to)
	refused := false
	for i := 0; i < b.out.n; {
		n, e := sendBatch(o.fd, b.out.hdrs[i:b.out.n])
		if e == unix.ECONNREFUSED && !refused {
			// ICMP's word on an earlier datagram; this one was not tried.
			refused = true
			continue
		}
		refused = false
		if b.out.hdrs[i].Iovlen > 1 && (e == unix.EINVAL || e == unix.EMSGSIZE || e == unix.EIO) {
			// Larger than the route's MTU, or no offload there: one by one
			// from now on.
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

// size adds up the datagrams from up to to.
func (b *batch) size(from, to int) int {
	sum := 0
	for i := from; i < to; i++ {
		sum += int(b.vecs[i].Len)
	}
	return sum
}

// pack makes parcels of datagrams, equal ones in one: the kernel carries
// them through its stack as one packet and cuts them up at the end (generic
// segmentation, Linux 4.18), which costs a fraction of sending each.
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

// alike counts the datagrams that can go as segments of one send: of equal
// size, but for a last shorter one.
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

// appendSegment appends control data that asks for segments of a size.
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
