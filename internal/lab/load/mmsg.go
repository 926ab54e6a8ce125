package load

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batchSize is how many messages one sendmmsg or recvmmsg moves.
const batchSize = 64

// maxSegments is the limit of datagrams per message (UDP_MAX_SEGMENTS) of kernels
// before 6.9.
const maxSegments = 64

// mmsghdr is struct mmsghdr, which x/sys does not have.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// batch is a set of messages for sendmmsg or recvmmsg. It is allocated once, and
// every system call uses the same buffers.
type batch struct {
	hdrs []mmsghdr
	iovs []unix.Iovec
	bufs [][]byte
	// ctls is nil unless ancillary data is wanted.
	ctls [][]byte
}

// groRoom is the size of one control message that contains an int.
var groRoom = unix.CmsgSpace(4)

func newBatch(messages, size int, control bool) *batch {
	b := &batch{
		hdrs: make([]mmsghdr, messages),
		iovs: make([]unix.Iovec, messages),
		bufs: make([][]byte, messages),
	}
	for i := range b.hdrs {
		b.bufs[i] = pattern(size)
		b.iovs[i].Base = &b.bufs[i][0]
		b.iovs[i].SetLen(size)
		b.hdrs[i].hdr.Iov = &b.iovs[i]
		b.hdrs[i].hdr.SetIovlen(1)
		if control {
			b.ctls = append(b.ctls, make([]byte, groRoom))
			b.hdrs[i].hdr.Control = &b.ctls[i][0]
		}
	}
	return b
}

// send passes all messages to the kernel and returns how many it accepted.
func (b *batch) send(fd int) (int, unix.Errno) { return rawSendMany(fd, b.hdrs) }

// receive waits for one message and returns it with those that have arrived too.
func (b *batch) receive(fd int) (int, unix.Errno) {
	for i := range b.ctls {
		b.hdrs[i].hdr.SetControllen(groRoom)
	}
	return rawReceiveMany(fd, b.hdrs)
}

// message returns the i-th received message, and the size of the datagrams in it:
// GRO delivers several of one size, of which the last may be shorter.
func (b *batch) message(i int) (data []byte, segment int) {
	data = b.bufs[i][:min(int(b.hdrs[i].n), len(b.bufs[i]))]
	if b.ctls != nil {
		if n := groSize(b.ctls[i][:b.hdrs[i].hdr.Controllen]); n > 0 {
			return data, n
		}
	}
	return data, max(len(data), 1)
}

// groSize reads the UDP_GRO control message without allocating.
func groSize(ctl []byte) int {
	if len(ctl) < unix.CmsgLen(4) {
		return 0
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&ctl[0]))
	if h.Level != unix.IPPROTO_UDP || h.Type != unix.UDP_GRO {
		return 0
	}
	return int(binary.NativeEndian.Uint32(ctl[unix.CmsgLen(0):]))
}
