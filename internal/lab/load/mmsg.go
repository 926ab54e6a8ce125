package load

import "golang.org/x/sys/unix"

// batchSize is how many messages one sendmmsg or recvmmsg moves.
const batchSize = 64

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
}

func newBatch(messages, size int) *batch {
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
	}
	return b
}

// send passes all messages to the kernel and returns how many it accepted.
func (b *batch) send(fd int) (int, unix.Errno) {
	return rawMany(unix.SYS_SENDMMSG, fd, b.hdrs, 0)
}

// receive waits for one message and returns it with those that have arrived too.
func (b *batch) receive(fd int) (int, unix.Errno) {
	return rawMany(unix.SYS_RECVMMSG, fd, b.hdrs, unix.MSG_WAITFORONE)
}

// message returns the i-th received message.
func (b *batch) message(i int) []byte { return b.bufs[i][:min(int(b.hdrs[i].n), len(b.bufs[i]))] }
