package balance_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"fairlead/internal/model"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

var pid = os.Getpid()

// said is the answer of a server.
type said struct {
	// by is the server's name, sees the client address that it receives, and port the port on which
	// it received the line.
	by   string
	sees netip.Addr
	port int
}

// talk is a conversation with a server, open until the test ends.
type talk struct {
	l     *lan
	conn  net.Conn
	lines *bufio.Reader
	// asked counts the lines sent.
	asked *int
}

// dial opens a conversation with a port of the virtual address.
func (l *lan) dial(from place.Place, proto model.Proto, v4 bool, port int) (talk, error) {
	return l.dialFrom(from, netip.Addr{}, proto, v4, port)
}

// dialFrom is dial from an address of the place. If the address is invalid, the kernel chooses one.
func (l *lan) dialFrom(from place.Place, local netip.Addr, proto model.Proto, v4 bool, port int) (talk, error) {
	return l.dialTo(from, local, proto, netip.AddrPortFrom(vip(v4), uint16(port)))
}

// dialTo is dialFrom to any virtual address.
func (l *lan) dialTo(from place.Place, local netip.Addr, proto model.Proto, to netip.AddrPort) (talk, error) {
	return l.dialUntil(time.Now().Add(place.Timeout), from, local, proto, to)
}

// dialUntil is dialTo with a deadline. Each client gets a port that no earlier client used. With a
// used port, UDP would continue the old flow, and over TCP the real server might still have the old
// connection.
func (l *lan) dialUntil(end time.Time, from place.Place, local netip.Addr, proto model.Proto, to netip.AddrPort,
) (talk, error) {
	t := talk{l: l, asked: new(int)}
	ip, port := local.AsSlice(), l.freshPort()
	d := net.Dialer{Deadline: end, LocalAddr: &net.TCPAddr{IP: ip, Port: port}, Control: reuse}
	if proto == model.UDP {
		d.LocalAddr = &net.UDPAddr{IP: ip, Port: port}
	}
	err := from(func() (err error) {
		t.conn, err = d.Dial(string(proto), to.String())
		return err
	})
	if err != nil {
		return t, err
	}
	t.lines = bufio.NewReader(t.conn)
	l.Cleanup(func() { t.conn.Close() })
	return t, nil
}

// reuse sets SO_REUSEADDR: a socket that is closed in this process may still be open in a child
// process before its exec.
func reuse(_, _ string, conn syscall.RawConn) error {
	var failed error
	err := conn.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR,
			1)
	})
	return errors.Join(err, failed)
}

// closeAtOnce closes a connection while no child process is before its exec: a child's copy would keep the connection
// open, and its port could not connect again.
func closeAtOnce(conn net.Conn) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return conn.Close()
}

// freshPort returns a port of the range from which the kernel chooses ports for clients. It returns
// each port only after all others.
func (l *lan) freshPort() int {
	const first, last = 32768, 60999
	*l.dialled++
	return first + *l.dialled%(last-first+1)
}

// soon is the deadline for an answer that must not come.
func soon() time.Time { return time.Now().Add(250 * time.Millisecond) }

// talk opens a conversation, which must succeed, and returns the first answer.
func (l *lan) talk(from place.Place, proto model.Proto, v4 bool) (talk, said) {
	l.Helper()
	t, err := l.dial(from, proto, v4, 8080)
	if err != nil {
		l.Fatalf("dial: %v", err)
	}
	return t, t.hears()
}

// ask sends a line, over UDP repeatedly, and returns the answer.
func (t talk) ask() (said, error) { return t.askUntil(time.Now().Add(place.Timeout)) }

func (t talk) askUntil(end time.Time) (said, error) {
	const often = 500 * time.Millisecond
	*t.asked++
	udp := t.conn.RemoteAddr().Network() == "udp"
	for {
		wait := end
		if udp && time.Until(end) > often {
			wait = time.Now().Add(often)
		}
		s, err := t.line(strconv.Itoa(*t.asked), wait)
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() || wait == end {
			return s, err
		}
	}
}

// line sends a line and returns the answer to it. A line repeated over UDP gets
// two answers, and the second may arrive after the next line is sent.
func (t talk) line(question string, deadline time.Time) (s said, err error) {
	if err := t.conn.SetDeadline(deadline); err != nil {
		return s, err
	}
	if _, err := fmt.Fprintln(t.conn, question); err != nil {
		return s, err
	}
	for to := ""; to != question; {
		line, err := t.lines.ReadString('\n')
		if err != nil {
			return s, err
		}
		var sees string
		if _, err := fmt.Sscan(line, &s.by, &sees, &s.port, &to); err != nil {
			return s, fmt.Errorf("%q: %w", line, err)
		}
		if s.sees, err = netip.ParseAddr(sees); err != nil {
			return s, err
		}
	}
	return s, nil
}

// hears is ask that fails the test without an answer.
func (t talk) hears() said {
	t.l.Helper()
	s, err := t.ask()
	if err != nil {
		t.l.Fatalf("%s %s does not answer %s: %v", t.conn.RemoteAddr().Network(), t.conn.RemoteAddr(),
			t.conn.LocalAddr(), err)
	}
	return s
}

// endsByReset fails the test unless a client that only reads is reset, or its socket on the host
// itself is aborted.
func (t talk) endsByReset() {
	t.l.Helper()
	if err := t.conn.SetReadDeadline(time.Now().Add(place.Timeout)); err != nil {
		t.l.Fatal(err)
	}
	if _, err := t.lines.ReadString('\n'); !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.ECONNABORTED) {
		t.l.Errorf("%s is not reset: %v", t.conn.LocalAddr(), err)
	}
}

// again makes a client whose connection was reset connect again from the same port.
func (t talk) again(from place.Place) {
	t.l.Helper()
	closeAtOnce(t.conn)
	d := net.Dialer{Timeout: place.Timeout, LocalAddr: t.conn.LocalAddr(), Control: reuse}
	err := from(func() error {
		c, err := d.Dial("tcp", t.conn.RemoteAddr().String())
		if err == nil {
			c.Close()
		}
		return err
	})
	if err != nil {
		t.l.Errorf("the client cannot connect again: %v", err)
	}
}

// isRefused fails the test unless the client's connection is refused.
func (l *lan) isRefused(from place.Place, proto model.Proto, v4 bool, port int) {
	l.Helper()
	t, err := l.dial(from, proto, v4, port)
	if err == nil && proto == model.UDP {
		_, err = t.ask()
	}
	if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.EACCES) {
		l.Errorf("%s to port %d: %v, want a refused connection", proto, port, err)
	}
}

// spread opens the given number of conversations and counts the answers of each server. It closes
// no conversation before the test ends: a reused UDP port would continue an old flow.
func (l *lan) spread(from place.Place, proto model.Proto, v4 bool, times int) map[string]int {
	l.Helper()
	count := map[string]int{}
	for range times {
		_, s := l.talk(from, proto, v4)
		count[s.by]++
	}
	return count
}
