package load

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"golang.org/x/sys/unix"
)

// acceptors is the maximum number of the server's threads for tcp-crr. Each serves
// one connection at a time.
const acceptors = 16

// crrClient opens, uses and closes one connection after another. A transaction ends
// when its response has arrived; a connection counts when it is closed.
func (j *job) crrClient(t *thread, target netip.AddrPort, i int) error {
	v, err := j.newVisitor(t, target)
	if err != nil {
		return err
	}
	return j.transact(t, i, v.visit, true)
}

// visitor contains what all connections of one thread reuse.
type visitor struct {
	j       *job
	t       *thread
	s       *stream
	address []byte // the target's, in the kernel's format
	source  uint16 // the client's port; 0 means one that the kernel chooses
	out, in []byte
}

func (j *job) newVisitor(t *thread, target netip.AddrPort) (*visitor, error) {
	address, err := rawAddress(target)
	if err != nil {
		return nil, err
	}
	return &visitor{j: j, t: t, s: j.stream(-1, target), address: address,
		out: pattern(j.spec.Size), in: pattern(j.spec.Size)}, nil
}

// visit makes one connection, from connect to close. It returns the time at which
// the response had arrived.
func (v *visitor) visit() (done int64, err error) {
	v.s.fd, err = open(v.s.peer.Addr(), unix.SOCK_STREAM)
	if err != nil {
		return 0, err
	}
	defer rawClose(v.s.fd)
	if err := holdAcknowledgements(v.s.fd, v.j.spec.holds()); err != nil {
		return 0, err
	}
	if err := v.bind(); err != nil {
		return 0, err
	}
	if err := retryConnect(v.s.fd, v.address); err != nil {
		return 0, failed("connect", v.s.peer, err)
	}
	if err := v.s.writeFull(v.out); err != nil {
		return 0, err
	}
	v.t.sentBytes.Add(uint64(len(v.out)))
	if err := v.s.readFull(v.in); err != nil {
		return 0, unexpected(v.s, err)
	}
	done = v.j.clock.now()
	v.t.receivedBytes.Add(uint64(len(v.in)))
	if err := v.j.part(v.s, v.in); err != nil {
		return 0, err
	}
	v.t.connections.Add(1)
	return done, nil
}

// bind gives the connection its source port, if it has one.
func (v *visitor) bind() error {
	if v.source == 0 {
		return nil
	}
	all := netip.IPv4Unspecified()
	if v.s.peer.Addr().Is6() {
		all = netip.IPv6Unspecified()
	}
	sa, err := sockaddr(netip.AddrPortFrom(all, v.source))
	if err != nil {
		return err
	}
	if err := unix.Bind(v.s.fd, sa); err != nil {
		return failed("bind a port for", v.s.peer, err)
	}
	return nil
}

// holds reports whether both ends delay acknowledgements, so that a connection has as few
// segments as TCP allows.
func (s Spec) holds() bool { return s.Workload == TCPCRR && s.Close != ClientFIN }

// holdAcknowledgements makes a socket, and the connections that it accepts, delay
// acknowledgements until the next data if hold is true, and otherwise send them at
// once, as the kernel does by default.
func holdAcknowledgements(fd int, hold bool) error {
	quick := 1
	if hold {
		quick = 0
	}
	return setInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, quick)
}

// part prepares the client's close: it waits for the server's FIN, unless the client
// closes first, or sets the socket so that close(2) sends a reset.
func (j *job) part(s *stream, scratch []byte) error {
	switch j.spec.Close {
	case RST:
		return resetOnClose(s.fd)
	case ClientFIN:
		return nil // close(2) sends the first FIN
	}
	switch _, err := s.read(scratch[:1]); {
	case err == io.EOF:
		return nil
	case err == nil:
		return fmt.Errorf("receive from %s: the response is longer than the request", s.peer)
	default:
		return err
	}
}

// resetOnClose makes close(2) reset the connection, so that neither side enters
// TIME_WAIT.
func resetOnClose(fd int) error {
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return fmt.Errorf("set linger: %w", err)
	}
	return nil
}

// crrServer serves connections from the listener until the run is over. It only
// counts a failed connection; the client decides whether the run has failed.
func (j *job) crrServer(t *thread, listener int) error {
	buf := make([]byte, j.spec.Size)
	s := j.stream(-1, netip.AddrPort{})
	s.over = nil // a client that has connected must send its request
	for !j.done.Load() {
		fd, err := accept(listener)
		if errors.Is(err, errNoConnection) {
			continue
		}
		if err != nil {
			return err
		}
		s.fd = fd
		if err := j.serve(t, s, buf); err != nil {
			t.errors.Add(1)
		}
		rawClose(fd)
	}
	return nil
}

func (j *job) serve(t *thread, s *stream, buf []byte) error {
	if err := s.readFull(buf); err != nil {
		return err
	}
	t.receivedBytes.Add(uint64(len(buf)))
	answer := s.writeFull
	if j.spec.Close == FIN {
		answer = s.writeLast
	}
	if err := answer(buf); err != nil {
		return err
	}
	t.sentBytes.Add(uint64(len(buf)))
	t.transactions.Add(1)
	t.connections.Add(1)
	if j.spec.Close != FIN {
		if _, err := s.read(buf); err != nil && err != io.EOF && !errors.Is(err, ErrClosed) {
			return err
		}
	}
	return nil
}
