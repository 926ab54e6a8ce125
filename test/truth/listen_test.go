package truth

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// socket is the socket of a command: listen PLACE PROTO ADDRESS [dev=LINK] [full]
// [minttl=N] [v6only] [reuse] [cgroup=plain|drop].
type socket struct {
	place, proto, link string
	// cgroup says that the server is a process in a cgroup of its own: drop, if the parent of the
	// cgroup is in Host.Dropping, or plain.
	cgroup              string
	at                  netip.AddrPort
	full, v6only, reuse bool
	minTTL              int
}

// parseSocket reads the command of a socket.
func parseSocket(command string) (socket, error) {
	words := strings.Fields(command)
	if len(words) < 4 {
		return socket{}, fmt.Errorf("%q: want listen PLACE PROTO ADDRESS", command)
	}
	s := socket{place: words[1], proto: words[2]}
	var err error
	s.at, err = netip.ParseAddrPort(words[3])
	for _, option := range words[4:] {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "dev":
			s.link = value
		case "cgroup":
			s.cgroup = value
		case "full":
			s.full = true
		case "v6only":
			s.v6only = true
		case "reuse":
			s.reuse = true
		case "minttl":
			s.minTTL, err = strconv.Atoi(value)
		}
	}
	return s, err
}

// identity is how the socket introduces itself: its place, and the socket as `fairlead
// explain` shows it.
func (s socket) identity() string {
	addr := s.at.Addr().String()
	if s.at.Addr().Is6() {
		addr = "[" + addr + "]"
	}
	if s.link != "" {
		addr += "%" + s.link
	}
	state := map[string]string{"tcp": "listening", "udp": "bound"}[s.proto]
	return fmt.Sprintf("%s %s on %s:%d/%s", s.place, state, addr, s.at.Port(), s.proto)
}

// listen opens the socket of a command until the test ends. It ignores a socket that the
// place refuses, as Build does with other commands.
func listen(t testing.TB, h *Host, command string) {
	t.Helper()
	s, err := parseSocket(command)
	if err != nil {
		t.Fatal(err)
	}
	if s.cgroup != "" {
		s.inCgroup(t, h, command)
		return
	}
	fd, err := s.open(h.Places[s.place].Do)
	if err != nil {
		return
	}
	done := make(chan struct{})
	var ended atomic.Bool
	go func() {
		defer close(done)
		s.serve(fd, &ended)
	}()
	t.Cleanup(func() {
		ended.Store(true)
		_ = unix.Shutdown(fd, unix.SHUT_RD)
		<-done
		unix.Close(fd)
	})
	if s.full {
		s.fill(t, h)
	}
}

// serve answers clients until the test has ended.
func (s socket) serve(fd int, ended *atomic.Bool) {
	for !s.full && !ended.Load() {
		if s.proto == "tcp" {
			accept(fd, s.identity())
		} else {
			answer(fd, s.identity(), ended)
		}
	}
}

// open opens, prepares and binds the socket in a place.
func (s socket) open(in place.Place) (fd int, err error) {
	family, at := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(s.at.Port()), Addr: s.at.Addr().As16()})
	if s.at.Addr().Is4() {
		family, at = unix.AF_INET, &unix.SockaddrInet4{Port: int(s.at.Port()), Addr: s.at.Addr().As4()}
	}
	kind, backlog := unix.SOCK_STREAM, 128
	if s.proto == "udp" {
		kind = unix.SOCK_DGRAM
	}
	if s.full {
		backlog = 0
	}
	err = in(func() (err error) {
		if fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		err = errors.Join(s.options(fd, family), unix.Bind(fd, at))
		if err == nil && s.proto == "tcp" {
			err = unix.Listen(fd, backlog)
		}
		return err
	})
	if err != nil && fd > 0 {
		unix.Close(fd)
	}
	return fd, err
}

// options sets the options of the socket. An IPv6 socket also has those of IPv4, for its
// IPv4 clients.
func (s socket) options(fd, family int) error {
	set := func(wanted bool, level, name, value int) error {
		if !wanted {
			return nil
		}
		return unix.SetsockoptInt(fd, level, name, value)
	}
	v6, udp := family == unix.AF_INET6, s.proto == "udp"
	errs := []error{unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience),
		set(s.reuse, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
		set(v6 && s.v6only, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1),
		set(v6 && s.minTTL > 0, unix.IPPROTO_IPV6, unix.IPV6_MINHOPCOUNT, s.minTTL),
		set(s.minTTL > 0, unix.IPPROTO_IP, unix.IP_MINTTL, s.minTTL),
		set(v6 && udp, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1),
		set(!v6 && udp, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)}
	if s.link != "" {
		errs = append(errs, unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, s.link))
	}
	return errors.Join(errs...)
}

// patience is how long a socket waits for a client before it looks whether the test has ended: a shutdown does not wake
// every socket that waits.
var patience = unix.Timeval{Usec: 200_000}

// accept answers every connection with a line, until no client comes or the socket is shut down.
func accept(fd int, identity string) {
	for {
		conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED) {
			continue
		}
		if err != nil {
			return
		}
		_, _ = unix.Write(conn, []byte(identity+"\n"))
		unix.Close(conn)
	}
}

// answer answers every datagram from the address that it was sent to, until none comes, the
// socket is shut down or the test has ended: NAT can make two sockets answer each other for ever.
func answer(fd int, identity string, ended *atomic.Bool) {
	buf, oob := make([]byte, 64), make([]byte, 256)
	for !ended.Load() {
		_, n, _, from, err := unix.Recvmsg(fd, buf, oob, 0)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) {
			continue
		}
		if err != nil || from == nil {
			return
		}
		if control := answerFrom(oob[:n]); control != nil {
			_ = unix.Sendmsg(fd, []byte(identity+"\n"), control, from, 0)
		}
	}
}

// answerFrom returns the control message that sets the source of an answer to the
// destination of the datagram with this one. The interface is left to the routing table.
func answerFrom(oob []byte) []byte {
	info, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(info) == 0 {
		return nil
	}
	packet := slices.Clone(info[0].Data)
	if len(packet) >= 20 { // struct in6_pktinfo: address, interface
		return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte(packet[:16])})
	}
	// struct in_pktinfo: interface, local address, the destination in the header
	return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: [4]byte(packet[4:8])})
}

// fill connects to the socket, which accepts nothing, until its queue is full. A backlog of
// 0 has room for one connection.
func (s socket) fill(t testing.TB, h *Host) {
	t.Helper()
	at := s.at
	switch {
	case at.Addr().IsUnspecified() && s.link != "":
		at = netip.AddrPortFrom(netip.MustParseAddr(addresses[s.place][0]), at.Port())
	case at.Addr().IsUnspecified():
		at = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), at.Port())
	}
	err := h.Places[s.place].Do(func() error {
		conn, err := net.DialTimeout("tcp", at.String(), expected)
		if err == nil {
			t.Cleanup(func() { conn.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatalf("fill the queue of %s: %v", s.identity(), err)
	}
}
