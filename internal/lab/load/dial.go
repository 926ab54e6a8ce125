package load

import (
	"bytes"
	"errors"
	"io"
	"net/netip"

	"golang.org/x/sys/unix"
)

// connectRun opens the live flows and all streams of the client, and starts the
// streams after the server has answered each of them.
func (j *job) connectRun(target netip.AddrPort) error {
	if err := j.openFlows(target); err != nil {
		return err
	}
	if j.spec.Workload.HTTP() {
		return j.connectHTTP(target)
	}
	switch j.spec.Workload {
	case TCPCRR:
		return j.crrRun(target)
	case UDPQuery:
		return j.queryRun(target)
	}
	streams := make([]*stream, 0, j.spec.links())
	for i := range j.spec.links() {
		s, err := j.dial(target, hello{token: j.token, down: j.spec.flow(i) == Down, background: j.spec.background(i)})
		if err != nil {
			for _, s := range streams {
				unix.Close(s.fd)
			}
			return err
		}
		streams = append(streams, s)
	}
	for i, s := range streams {
		j.drive(s, i)
	}
	return nil
}

// crrRun makes one connection before it starts the threads, so that it returns an
// error at once if the target is dead.
func (j *job) crrRun(target netip.AddrPort) error {
	v, err := j.newVisitor(j.newThread(), target)
	if err != nil {
		return err
	}
	if j.spec.Attempts > 0 {
		v.source = j.spec.firstSource() - 1
	}
	if _, err := v.visit(); err != nil {
		return err
	}
	v.t.transactions.Add(1)
	if j.spec.Attempts > 0 {
		j.send(func(t *thread) error { return j.exhaust(t, target) })
		return nil
	}
	for i := range j.spec.Streams {
		j.send(func(t *thread) error { return j.crrClient(t, target, i) })
	}
	return nil
}

// dial opens one stream and waits for the answer to its hello.
func (j *job) dial(target netip.AddrPort, h hello) (*stream, error) {
	kind := unix.SOCK_STREAM
	if j.spec.Workload.udp() {
		kind = unix.SOCK_DGRAM
	}
	fd, err := connect(target, kind)
	if err != nil {
		return nil, err
	}
	s := j.stream(fd, target)
	if j.spec.Workload.udp() {
		err = s.greetUDP(h)
	} else {
		err = s.greetTCP(h, j.spec.Workload == TCPRR && !h.background)
	}
	if err == nil {
		err = s.prepare()
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return s, nil
}

// greetTCP sends the hello and waits until the server returns it.
func (s *stream) greetTCP(h hello, noDelay bool) error {
	if noDelay {
		if err := setNoDelay(s.fd); err != nil {
			return err
		}
	}
	if err := s.writeFull(h.bytes()); err != nil {
		return err
	}
	answer := make([]byte, helloSize)
	if err := s.readFull(answer); err != nil {
		return unexpected(s, err)
	}
	if !bytes.Equal(answer, h.bytes()) {
		return failed("greet", s.peer, errors.New("it is not the load server of this run"))
	}
	return nil
}

// greetUDP repeats the hello every tick until any datagram comes back: the same
// hello, or data if the hello's answer was lost.
func (s *stream) greetUDP(h hello) error {
	answer := make([]byte, helloSize)
	for range int(patience / tick) {
		if err := s.writeFull(h.bytes()); err != nil {
			return err
		}
		if _, err := s.readTick(answer); !errors.Is(err, ErrNoAnswer) {
			return err
		}
	}
	return silent(s.peer)
}

// readTick waits up to one tick for one datagram.
func (s *stream) readTick(b []byte) (int, error) {
	one := &stream{fd: s.fd, peer: s.peer, patience: tick}
	n, err := one.read(b)
	if err == io.EOF {
		return n, nil // an empty datagram is an answer too
	}
	return n, err
}

// drive runs the client's half of the i-th stream.
func (j *job) drive(s *stream, i int) {
	owning := func(f func(*thread, *stream, int) error) func(*thread) error {
		return func(t *thread) error {
			defer unix.Close(s.fd)
			return f(t, s, i)
		}
	}
	switch {
	case j.spec.background(i):
		j.send(owning(j.bulkSend))
	case j.spec.Workload == TCPRR:
		j.send(owning(j.rrClient))
	case j.spec.Workload == UDPRR:
		j.send(owning(j.udpClient))
	case j.spec.flow(i) == Down:
		j.receive(owning(func(t *thread, s *stream, _ int) error { return j.receiveFrom()(t, s) }))
	default:
		j.send(owning(func(t *thread, s *stream, i int) error { return j.sendTo(i)(t, s) }))
	}
}
