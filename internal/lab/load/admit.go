package load

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"golang.org/x/sys/unix"
)

// serveRun starts the server's side of a run on its listener.
func (j *job) serveRun(l *listener) {
	if err := holdAcknowledgements(l.tcp, j.spec.holds()); err != nil {
		j.fail(err)
	}
	switch {
	case j.spec.Workload.HTTP():
		j.serveHTTP(l)
	case j.spec.Workload == TCPCRR:
		for range min(j.spec.Streams, acceptors) {
			j.receive(func(t *thread) error { return j.crrServer(t, l.tcp) })
		}
	case j.spec.Workload == UDPQuery:
		for range min(j.spec.Streams, acceptors) {
			j.receive(func(t *thread) error { return j.queryServer(t, l.udp) })
		}
	case j.spec.Workload.udp():
		j.receive(func(*thread) error { return j.admitUDP(l) })
	default:
		j.receive(func(*thread) error { return j.admitTCP(l) })
	}
}

// admitTCP accepts connections until all streams of the run are connected or the
// run is over. It ends then, so that only streams use CPU time in the window.
func (j *job) admitTCP(l *listener) error {
	for admitted := 0; admitted < j.spec.links() && !j.done.Load(); {
		fd, err := accept(l.tcp)
		if errors.Is(err, errNoConnection) {
			continue
		}
		if err != nil {
			return err
		}
		if j.admitStream(fd) {
			admitted++
		} else {
			unix.Close(fd)
		}
	}
	return nil
}

// admitStream reads the hello from a connection and starts its thread. It returns
// false if the connection is not part of this run.
func (j *job) admitStream(fd int) bool {
	sa, err := unix.Getpeername(fd)
	if err != nil {
		return false
	}
	s := j.stream(fd, addrPort(sa))
	s.over = nil // every client must send a hello
	b := make([]byte, helloSize)
	if err := s.readFull(b); err != nil {
		return false
	}
	h, ok := parseHello(b)
	if !ok || h.token != j.token || s.writeFull(b) != nil {
		return false
	}
	s.over = &j.done
	err = s.prepare()
	if err == nil && j.spec.Workload == TCPRR && !h.background {
		err = setNoDelay(s.fd)
	}
	if err != nil {
		j.fail(err)
		return false
	}
	j.start(s, h)
	return true
}

// prepare makes a spinning stream's descriptor non-blocking.
func (s *stream) prepare() error {
	if !s.spin {
		return nil
	}
	if err := unix.SetNonblock(s.fd, true); err != nil {
		return fmt.Errorf("make socket non-blocking: %w", err)
	}
	return nil
}

// start runs the server's half of an admitted stream.
func (j *job) start(s *stream, h hello) {
	owning := func(f func(*thread, *stream) error) func(*thread) error {
		return func(t *thread) error {
			defer unix.Close(s.fd)
			return f(t, s)
		}
	}
	switch {
	case h.background:
		j.receive(owning(j.bulkReceive))
	case j.spec.Workload == TCPRR:
		j.receive(owning(j.rrServer))
	case j.spec.Workload == UDPRR:
		j.receive(owning(j.udpServer))
	case h.down:
		j.send(owning(j.sendTo(j.downs)))
		j.downs++
	default:
		j.receive(owning(j.receiveFrom()))
	}
}

// sendTo returns the sending loop for the protocol, receiveFrom the receiving one.
func (j *job) sendTo(i int) func(*thread, *stream) error {
	return func(t *thread, s *stream) error {
		if j.spec.Workload.udp() {
			return j.datagramSend(t, s, i)
		}
		return j.bulkSend(t, s, i)
	}
}

func (j *job) receiveFrom() func(*thread, *stream) error {
	if j.spec.Workload.udp() {
		return j.datagramReceive
	}
	return j.bulkReceive
}

// admitUDP waits for hellos and gives each source a connected socket and a
// thread, until all streams are open or the run is over.
func (j *job) admitUDP(l *listener) error {
	known := map[netip.AddrPort]bool{}
	b, oob := make([]byte, helloSize), make([]byte, 128)
	for len(known) < j.spec.links() && !j.done.Load() {
		n, oobn, _, from, err := unix.Recvmsg(l.udp, b, oob, 0)
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("receive hello: %w", err)
		}
		h, ok := parseHello(b[:n])
		peer := addrPort(from)
		if !ok || h.token != j.token || known[peer] {
			continue
		}
		if err := j.admitFlow(l, h, peer, from, oob[:oobn], b); err != nil {
			return fmt.Errorf("answer %s: %w", peer, err)
		}
		known[peer] = true
	}
	return nil
}

// admitFlow answers a hello from a socket connected to its source. From then
// on the kernel prefers that socket for the flow.
func (j *job) admitFlow(l *listener, h hello, peer netip.AddrPort, from unix.Sockaddr, oob, answer []byte) error {
	to, ok := destination(oob)
	if !ok {
		return errors.New("the kernel did not report its destination address")
	}
	if l.addr.Addr().Is6() && to.Is4() {
		to = netip.AddrFrom16(to.As16())
	}
	fd, err := bind(netip.AddrPortFrom(to, l.addr.Port()), unix.SOCK_DGRAM)
	if err != nil {
		return err
	}
	s := j.stream(fd, peer)
	if err = unix.Connect(fd, from); err == nil {
		if _, err = s.write(answer); err == nil || err == io.EOF {
			err = s.prepare()
		}
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	j.start(s, h)
	return nil
}
