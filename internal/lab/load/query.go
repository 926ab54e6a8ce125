package load

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// querySize is the least size of a question of udp-query in bytes: the stamp of the
// run, and the question's number.
const querySize = stampSize + 4

// queryRun asks one question before it starts the threads, so that it returns an error
// at once if the target does not answer.
func (j *job) queryRun(target netip.AddrPort) error {
	q, err := j.newQuery(j.newThread(), target)
	if err != nil {
		return err
	}
	q.s.patience = patience // the first question may open the path
	if _, err := q.ask(); err != nil {
		return err
	}
	q.t.transactions.Add(1)
	for i := range j.spec.Streams {
		j.send(func(t *thread) error {
			q, err := j.newQuery(t, target)
			if err != nil {
				return err
			}
			return j.transact(t, i, q.ask, true)
		})
	}
	return nil
}

// query contains what all questions of one thread reuse.
type query struct {
	j       *job
	t       *thread
	s       *stream
	address []byte // the target's, in the kernel's format
	number  uint32
	out, in []byte
}

func (j *job) newQuery(t *thread, target netip.AddrPort) (*query, error) {
	address, err := rawAddress(target)
	if err != nil {
		return nil, err
	}
	q := &query{j: j, t: t, s: j.stream(-1, target), address: address, out: pattern(j.spec.Size),
		in: make([]byte, j.spec.Size+1)}
	q.s.patience = lossAfter
	stamp(q.out, j.token, phaseWindow)
	return q, nil
}

// ask opens a socket, sends one question, waits for its answer and closes the socket.
// It returns the time at which the answer had arrived.
func (q *query) ask() (done int64, err error) {
	if q.s.fd, err = openBare(q.s.peer.Addr(), unix.SOCK_DGRAM); err != nil {
		return 0, err
	}
	defer rawClose(q.s.fd)
	if err := retryConnect(q.s.fd, q.address); err != nil {
		return 0, failed("connect", q.s.peer, err)
	}
	q.number++
	binary.LittleEndian.PutUint32(q.out[stampSize:], q.number)
	if err := q.s.writeFull(q.out); err != nil {
		return 0, err
	}
	q.t.sentBytes.Add(uint64(len(q.out)))
	q.t.packetsSent.Add(1)
	for {
		n, err := q.s.read(q.in)
		if err != nil {
			return 0, err
		}
		if n == len(q.out) && binary.LittleEndian.Uint32(q.in[stampSize:]) == q.number {
			q.t.receivedBytes.Add(uint64(n))
			q.t.packetsReceived.Add(1)
			return q.j.clock.now(), nil
		}
	}
}

// envelope is a datagram with its other end's address and, as control data, the local
// address that it was sent to. The kernel sends an answer with the same contents from
// that address.
type envelope struct {
	hdr     unix.Msghdr
	iov     unix.Iovec
	name    [unix.SizeofSockaddrInet6]byte
	control [16]uint64 // aligned for a struct cmsghdr
	data    []byte
}

func newEnvelope(size int) *envelope {
	e := &envelope{data: make([]byte, size)}
	e.iov.Base = &e.data[0]
	e.hdr.Iov, e.hdr.Name, e.hdr.Control = &e.iov, &e.name[0], (*byte)(unsafe.Pointer(&e.control[0]))
	e.hdr.SetIovlen(1)
	return e
}

// receive waits for a datagram and returns its size.
func (e *envelope) receive(fd int) (int, unix.Errno) {
	e.iov.SetLen(len(e.data))
	e.hdr.Namelen = uint32(len(e.name))
	e.hdr.SetControllen(int(unsafe.Sizeof(e.control)))
	return rawMessage(unix.SYS_RECVMSG, fd, &e.hdr)
}

// answer sends the first n bytes back.
func (e *envelope) answer(fd, n int) unix.Errno {
	e.iov.SetLen(n)
	e.anyLink()
	_, errno := rawMessage(unix.SYS_SENDMSG, fd, &e.hdr)
	return errno
}

// anyLink removes the link from the control data: routing chooses it for the answer.
func (e *envelope) anyLink() {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&e.control[0]))
	data := unsafe.Add(unsafe.Pointer(h), unix.CmsgLen(0))
	switch {
	case e.hdr.Controllen == 0:
	case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO:
		(*unix.Inet4Pktinfo)(data).Ifindex = 0
	case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO:
		p := (*unix.Inet6Pktinfo)(data)
		if !netip.AddrFrom16(p.Addr).IsLinkLocalUnicast() {
			p.Ifindex = 0
		}
	}
}

// queryServer sends every question of the run back from the socket that all clients
// share, until the run is over.
func (j *job) queryServer(t *thread, fd int) error {
	e := newEnvelope(j.spec.Size + 1)
	for !j.done.Load() {
		n, errno := e.receive(fd)
		switch errno {
		case 0:
		case unix.EAGAIN, unix.EINTR, unix.ECONNREFUSED:
			continue
		default:
			return failed("receive from", netip.AddrPort{}, errno)
		}
		if _, ok := readStamp(e.data[:n], j.token); !ok || n != j.spec.Size {
			continue
		}
		t.receivedBytes.Add(uint64(n))
		t.packetsReceived.Add(1)
		switch errno := e.answer(fd, n); {
		case errno == 0:
			t.sentBytes.Add(uint64(n))
			t.packetsSent.Add(1)
			t.transactions.Add(1)
		case errors.Is(errno, unix.ECONNREFUSED), errors.Is(errno, unix.EINTR), errors.Is(errno, unix.EAGAIN):
			t.errors.Add(1) // the client decides whether the run has failed
		default:
			return failed("answer", netip.AddrPort{}, errno)
		}
	}
	return nil
}
