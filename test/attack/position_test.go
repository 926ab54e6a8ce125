package attack_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fairlead/internal/model"
	"fairlead/test/place"
	"fairlead/test/shell"

	"golang.org/x/sys/unix"
)

// answerTimeout is how long a client waits for an answer.
const answerTimeout = 5 * time.Second

// position is a place from which attackers send packets, or at which victims receive them.
type position place.Place

// sh runs a shell script in the place and returns what it prints.
func (p position) sh(script string) (string, error) { return shell.Try(p, "set -e\n"+script) }

// send sends unchanged IP packets via the place's routes.
func (p position) send(packets ...[]byte) error {
	return p(func() error {
		v4 := packets[0][0]>>4 == 4
		family := map[bool]int{true: unix.AF_INET, false: unix.AF_INET6}[v4]
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, b := range packets {
			var to unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte(b[16:20])}
			if !v4 {
				to = &unix.SockaddrInet6{Addr: [16]byte(b[24:40])}
			}
			// The attacker's own kernel may reject some of the source addresses.
			if err := unix.Sendto(fd, b, 0, to); err != nil && !errors.Is(err, unix.EINVAL) &&
				!errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENETUNREACH) {
				return fmt.Errorf("send a packet: %w", err)
			}
		}
		return nil
	})
}

// sendFrame sends an Ethernet frame on a link.
func (p position) sendFrame(link string, dst net.HardwareAddr, kind uint16, body []byte) error {
	return p(func() error {
		l, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		frame := append(append(append([]byte{}, dst...), l.HardwareAddr...), byte(kind>>8), byte(kind))
		return unix.Sendto(fd, append(frame, body...), 0, &unix.SockaddrLinklayer{Ifindex: l.Index})
	})
}

// tap captures what a place receives.
type tap struct{ fd int }

// tap starts to capture what arrives on any link of the place.
func (p position) tap() (t tap, err error) {
	err = p(func() error {
		const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00
		t.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all)
		if err != nil {
			return err
		}
		return unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	})
	return t, err
}

func (t tap) close() { unix.Close(t.fd) }

// received reports whether a frame that matches the condition has arrived.
func (t tap) received(is func(frame []byte) bool) bool {
	buf := make([]byte, 65536)
	found := false
	for {
		n, from, err := unix.Recvfrom(t.fd, buf, 0)
		if err != nil {
			return found
		}
		if l, ok := from.(*unix.SockaddrLinklayer); ok &&
			(l.Pkttype == unix.PACKET_OUTGOING || l.Pkttype == unix.PACKET_OTHERHOST) {
			continue // sent by the place itself, or flooded by a switch
		}
		found = found || is(buf[:n])
	}
}

// contains returns the condition that a frame contains a text.
func contains(text string) func([]byte) bool {
	return func(frame []byte) bool { return bytes.Contains(frame, []byte(text)) }
}

// server answers each line and datagram with its name and the same text.
type server struct {
	tcp net.Listener
	udp net.PacketConn
	// open maps the client's address and port to the accepted connection.
	open *sync.Map
}

func (p position) serve(name string, port uint16) (s server, err error) {
	s.open = &sync.Map{}
	at := fmt.Sprint(":", port)
	if s.tcp, err = place.Listen(place.Place(p), at); err != nil {
		return s, err
	}
	if s.udp, err = place.ListenPacket(place.Place(p), at); err != nil {
		s.tcp.Close()
		return s, err
	}
	go place.Accept(s.tcp, func(c net.Conn) { s.converse(c, name) })
	go place.ReplyTo(s.udp, func(datagram []byte, _ net.Addr) []byte { return append([]byte(name+" "), datagram...) })
	return s, nil
}

// converse answers what a client sends.
func (s server) converse(c net.Conn, name string) {
	s.open.Store(c.RemoteAddr().String(), c)
	defer s.open.Delete(c.RemoteAddr().String())
	buf := make([]byte, 256)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		_, _ = c.Write(append([]byte(name+" "), buf[:n]...))
	}
}

func (s server) close() { s.tcp.Close(); s.udp.Close() }

// say sends the text to a client that has not sent a request.
func (s server) say(client net.Addr, text string) error {
	c, ok := s.open.Load(client.String())
	if !ok {
		return fmt.Errorf("the server has no connection from %s", client)
	}
	_, err := c.(net.Conn).Write([]byte(text))
	return err
}

// talk is an open conversation.
type talk struct{ net.Conn }

// dial opens a conversation from an address of the place. If from has no port, the kernel chooses
// one.
func (p position) dial(proto model.Proto, from, to netip.AddrPort) (t talk, err error) {
	d := net.Dialer{Timeout: answerTimeout}
	if proto == model.TCP {
		d.LocalAddr = net.TCPAddrFromAddrPort(from)
	} else {
		d.LocalAddr = net.UDPAddrFromAddrPort(from)
	}
	err = p(func() (err error) {
		t.Conn, err = d.Dial(string(proto), to.String())
		return err
	})
	return t, err
}

// nonce returns a text that was never sent before.
func nonce() string { return fmt.Sprintf("nonce-%d-", nonces.Add(1)) }

var nonces atomic.Int64

// ask sends the text and waits until it comes back from the server with that name. It repeats
// datagrams.
func (t talk) ask(name, text string) error {
	buf := make([]byte, 2048)
	for deadline := time.Now().Add(answerTimeout); ; {
		if _, err := t.Write([]byte(text)); err != nil {
			return err
		}
		wait := deadline
		if t.RemoteAddr().Network() == "udp" {
			wait = time.Now().Add(answerTimeout / 10)
		}
		_ = t.SetReadDeadline(wait)
		for {
			n, err := t.Read(buf)
			if err == nil && string(buf[:n]) == name+" "+text {
				return nil
			}
			if err == nil && (strings.Contains(string(buf[:n]), "nonce-") || string(buf[:n]) == name+" forged") {
				continue // an answer to an earlier datagram, or to a forged one
			}
			if err == nil {
				return fmt.Errorf("%s answers %q", t.RemoteAddr(), buf[:n])
			}
			if !errors.Is(err, unix.EAGAIN) && !isTimeout(err) || time.Now().After(deadline) {
				return err
			}
			break
		}
	}
}

// hear waits for the text.
func (t talk) hear(text string) error {
	buf := make([]byte, len(text))
	_ = t.SetReadDeadline(time.Now().Add(answerTimeout))
	if _, err := io.ReadFull(t, buf); err != nil {
		return err
	}
	if string(buf) != text {
		return fmt.Errorf("%s sends %q", t.RemoteAddr(), buf)
	}
	return nil
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// converse opens a conversation, sends one request, and closes it.
func (p position) converse(proto model.Proto, from, to netip.AddrPort, name, text string) error {
	t, err := p.dial(proto, from, to)
	if err != nil {
		return err
	}
	defer t.Close()
	return t.ask(name, text)
}
