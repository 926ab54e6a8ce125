package balance_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

var pid = os.Getpid()

// said is what a server answers.
type said struct {
	// by is the server's name, sees whom it takes for its client, and port where
	// it was asked.
	by   string
	sees netip.Addr
	port int
}

// talk is a conversation with whoever answers, open until the test ends.
type talk struct {
	l     *lan
	conn  net.Conn
	lines *bufio.Reader
}

// dial begins a conversation with a port of the virtual address.
func (l *lan) dial(from place, proto model.Proto, v4 bool, port int) (talk, error) {
	return l.dialFrom(from, netip.Addr{}, proto, v4, port)
}

// dialFrom is dial from an address of the place's; any where it is not valid.
func (l *lan) dialFrom(from place, local netip.Addr, proto model.Proto, v4 bool, port int) (talk, error) {
	return l.dialTo(from, local, proto, netip.AddrPortFrom(vip(v4), uint16(port)))
}

// dialTo is dialFrom to any virtual address.
func (l *lan) dialTo(from place, local netip.Addr, proto model.Proto, to netip.AddrPort) (talk, error) {
	t := talk{l: l}
	d := net.Dialer{Timeout: patience}
	if local.IsValid() && proto == model.TCP {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
	} else if local.IsValid() {
		d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
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

// soon is how long nobody is waited for who must not come.
func soon() time.Time { return time.Now().Add(patience / 40) }

// dialFor is dial that does not wait long.
func (l *lan) dialFor(from place, proto model.Proto, v4 bool) (talk, error) {
	t := talk{l: l}
	d := net.Dialer{Deadline: soon()}
	err := from(func() (err error) {
		t.conn, err = d.Dial(string(proto), netip.AddrPortFrom(vip(v4), 8080).String())
		return err
	})
	if err == nil {
		t.lines = bufio.NewReader(t.conn)
		l.Cleanup(func() { t.conn.Close() })
	}
	return t, err
}

// talk is dial that must succeed, and its first answer.
func (l *lan) talk(from place, proto model.Proto, v4 bool) (talk, said) {
	l.Helper()
	t, err := l.dial(from, proto, v4, 8080)
	if err != nil {
		l.Fatalf("dial: %v", err)
	}
	return t, t.hears()
}

// ask says a line, over UDP again and again, and returns the answer.
func (t talk) ask() (said, error) {
	udp := t.conn.RemoteAddr().Network() == "udp"
	for deadline := time.Now().Add(patience); ; {
		wait := deadline
		if udp {
			wait = time.Now().Add(patience / 20)
		}
		line, err := t.line(wait)
		if err == nil {
			var s said
			var sees string
			_, err = fmt.Sscanf(line, "%s %s %d", &s.by, &sees, &s.port)
			if err == nil {
				s.sees, err = netip.ParseAddr(sees)
			}
			return s, err
		}
		var late net.Error
		if !udp || !errors.As(err, &late) || !late.Timeout() || time.Now().After(deadline) {
			return said{}, err
		}
	}
}

func (t talk) line(deadline time.Time) (string, error) {
	if err := t.conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := t.conn.Write([]byte("hello\n")); err != nil {
		return "", err
	}
	line, err := t.lines.ReadString('\n')
	return strings.TrimSpace(line), err
}

// hears is ask that must be answered.
func (t talk) hears() said {
	t.l.Helper()
	s, err := t.ask()
	if err != nil {
		t.l.Fatalf("%s %s does not answer %s: %v", t.conn.RemoteAddr().Network(), t.conn.RemoteAddr(), t.conn.LocalAddr(), err)
	}
	return s
}

// endsByReset fails the test unless who only reads is reset, or its socket on the
// host itself is ended.
func (t talk) endsByReset() {
	t.l.Helper()
	if err := t.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.l.Fatal(err)
	}
	if _, err := t.lines.ReadString('\n'); !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.ECONNABORTED) {
		t.l.Errorf("%s is not reset but: %v", t.conn.LocalAddr(), err)
	}
}

// again has a client whose connection was reset dial once more from the same port.
func (t talk) again(from place) {
	t.l.Helper()
	t.conn.Close()
	d := net.Dialer{Timeout: patience, LocalAddr: t.conn.LocalAddr()}
	err := from(func() error {
		c, err := d.Dial("tcp", t.conn.RemoteAddr().String())
		if err == nil {
			c.Close()
		}
		return err
	})
	if err != nil {
		t.l.Errorf("the service is back: %v", err)
	}
}

// isRefused fails the test unless nobody is there, and the client is told.
func (l *lan) isRefused(from place, proto model.Proto, v4 bool, port int) {
	l.Helper()
	t, err := l.dial(from, proto, v4, port)
	if err == nil && proto == model.UDP {
		_, err = t.ask()
	}
	if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.EACCES) {
		l.Errorf("%s to port %d: %v; want a refusal", proto, port, err)
	}
}

// spread talks so many times, each anew, and counts who answers. None is closed
// before the test ends: a UDP port that is used again would be an old flow.
func (l *lan) spread(from place, proto model.Proto, v4 bool, times int) map[string]int {
	l.Helper()
	count := map[string]int{}
	for range times {
		_, s := l.talk(from, proto, v4)
		count[s.by]++
	}
	return count
}
