package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// backlog is the requested backlog; the kernel limits it to somaxconn.
const backlog = 4096

// portTries limits the search for a port that is free for both TCP and UDP.
const portTries = 32

// listener is the server's port: one TCP and one UDP socket.
type listener struct {
	tcp, udp int
	addr     netip.AddrPort
}

// listen binds addr for TCP and UDP. Port 0 chooses any port that is free for both;
// an unspecified v6 address accepts v4 as well.
func listen(addr netip.AddrPort) (*listener, error) {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	var err error
	for range portTries {
		var l *listener
		if l, err = listenOnce(addr); err == nil {
			return l, nil
		}
		if addr.Port() != 0 || !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return nil, fmt.Errorf("listen on %s: %w", addr, err)
}

func listenOnce(addr netip.AddrPort) (*listener, error) {
	tcp, err := bind(addr, unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	l := &listener{tcp: tcp, udp: -1}
	bound, err := localAddr(tcp)
	if err == nil {
		l.addr = netip.AddrPortFrom(addr.Addr(), bound.Port())
		l.udp, err = bind(l.addr, unix.SOCK_DGRAM)
	}
	if err == nil {
		err = os.NewSyscallError("listen", unix.Listen(tcp, backlog))
	}
	if err == nil {
		err = askDestination(l.udp, addr.Addr())
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *listener) close() {
	unix.Close(l.tcp)
	if l.udp >= 0 {
		unix.Close(l.udp)
	}
}

// bind opens a socket on addr. SO_REUSEADDR lets TCP bind over TIME_WAIT and
// lets UDP streams share the listener's port.
func bind(addr netip.AddrPort, kind int) (int, error) {
	fd, err := open(addr.Addr(), kind)
	if err != nil {
		return -1, err
	}
	if err := bindTo(fd, addr); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func bindTo(fd int, addr netip.AddrPort) error {
	if err := setInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if addr.Addr().Is6() {
		// The default is a sysctl of the namespace; do not depend on it.
		if err := setInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
			return err
		}
	}
	sa, err := sockaddr(addr)
	if err != nil {
		return err
	}
	return os.NewSyscallError("bind", unix.Bind(fd, sa))
}

// errNoConnection means that no connection came within a tick.
var errNoConnection = errors.New("no connection came")

// accept takes one connection, which inherits the listener's time limits.
func accept(fd int) (int, error) {
	conn, errno := rawAccept(fd)
	switch errno {
	case 0:
		return conn, nil
	case unix.EAGAIN, unix.EINTR, unix.ECONNABORTED:
		return -1, errNoConnection
	}
	return -1, os.NewSyscallError("accept", errno)
}

// askDestination makes the kernel report the local address to which a datagram was
// sent, so that the answer can be sent from that address.
func askDestination(fd int, addr netip.Addr) error {
	if addr.Is4() {
		return setInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	}
	return setInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
}

// destination reads the address that the kernel reports because of askDestination.
func destination(oob []byte) (netip.Addr, bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.Addr{}, false
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= 12:
			return netip.AddrFrom4([4]byte(m.Data[8:12])), true // ipi_addr, after ifindex and spec_dst
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 20:
			return withZone([16]byte(m.Data[:16]), binary.NativeEndian.Uint32(m.Data[16:])), true
		}
	}
	return netip.Addr{}, false
}

// withZone adds the interface to a link-local address, which is ambiguous without
// it.
func withZone(ip [16]byte, link uint32) netip.Addr {
	a := netip.AddrFrom16(ip)
	if a.IsLinkLocalUnicast() {
		return a.WithZone(strconv.FormatUint(uint64(link), 10))
	}
	return a
}
