package load

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// datagramRoom is the requested socket buffer of UDP sockets in bytes, so that the
// burst of one batch does not overflow the default of 208 KiB.
const datagramRoom = 4 << 20

// open makes a blocking socket for the family of addr and sets its time limits.
// Receiving returns after every tick, so that the caller can check whether the run
// is over; sending and connecting fail after patience.
func open(addr netip.Addr, kind int) (int, error) {
	fd, err := openBare(addr, kind)
	if err != nil {
		return -1, err
	}
	if err := limit(fd, kind); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// openBare makes a socket as open does, but sets only the time after which receiving
// returns, because every system call for a socket that is used once costs as much as
// the path.
func openBare(addr netip.Addr, kind int) (int, error) {
	fd, errno := rawSocket(addr, kind|unix.SOCK_CLOEXEC)
	if errno != 0 {
		return -1, os.NewSyscallError("socket", errno)
	}
	if err := setTimeout(fd, unix.SO_RCVTIMEO, tick); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func limit(fd, kind int) error {
	if err := setTimeout(fd, unix.SO_SNDTIMEO, patience); err != nil || kind != unix.SOCK_DGRAM {
		return err
	}
	for _, opt := range []int{unix.SO_RCVBUF, unix.SO_SNDBUF} {
		if err := setInt(fd, unix.SOL_SOCKET, opt, datagramRoom); err != nil {
			return err
		}
	}
	return nil
}

func setTimeout(fd, opt int, d time.Duration) error {
	if errno := rawSetOption(fd, unix.SOL_SOCKET, opt, unix.NsecToTimeval(int64(d))); errno != 0 {
		return fmt.Errorf("set socket time limit: %w", errno)
	}
	return nil
}

func setInt(fd, level, opt, v int) error {
	if errno := rawSetOption(fd, level, opt, int32(v)); errno != 0 {
		return fmt.Errorf("set socket option %d/%d: %w", level, opt, errno)
	}
	return nil
}

func setNoDelay(fd int) error { return setInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) }

// connect opens a socket towards target.
func connect(target netip.AddrPort, kind int) (int, error) {
	fd, err := open(target.Addr(), kind)
	if err != nil {
		return -1, err
	}
	address, err := rawAddress(target)
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	if err := retryConnect(fd, address); err != nil {
		unix.Close(fd)
		return -1, failed("connect", target, err)
	}
	return fd, nil
}

// retryConnect connects in spite of signals: after EINTR the kernel continues to
// connect, and a second connect(2) waits for the result.
func retryConnect(fd int, address []byte) error {
	errno := rawConnect(fd, address)
	for errno == unix.EINTR || errno == unix.EALREADY {
		errno = rawConnect(fd, address)
	}
	if errno == 0 || errno == unix.EISCONN {
		return nil
	}
	return errno
}

// rawAddress encodes an address for connect(2), as struct sockaddr_in or
// sockaddr_in6, once for many connections.
func rawAddress(ap netip.AddrPort) ([]byte, error) {
	if ap.Addr().Is4() {
		b := binary.BigEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, unix.AF_INET), ap.Port())
		return append(append(b, ap.Addr().AsSlice()...), make([]byte, 8)...), nil
	}
	zone, err := zoneOf(ap.Addr())
	if err != nil {
		return nil, err
	}
	b := binary.BigEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, unix.AF_INET6), ap.Port())
	b = append(append(b, 0, 0, 0, 0), ap.Addr().AsSlice()...)
	return binary.NativeEndian.AppendUint32(b, zone), nil
}

func sockaddr(ap netip.AddrPort) (unix.Sockaddr, error) {
	if ap.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}, nil
	}
	zone, err := zoneOf(ap.Addr())
	if err != nil {
		return nil, err
	}
	return &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16(), ZoneId: zone}, nil
}

// addrPort is the reverse of sockaddr, without the zone's name: a zone's
// index is enough to answer.
func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// localAddr returns the address to which fd is bound.
func localAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
	}
	return addrPort(sa), nil
}

// zoneOf returns the index of the link that the address belongs to, 0 for any.
func zoneOf(addr netip.Addr) (uint32, error) {
	zone := addr.Zone()
	if zone == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	link, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, fmt.Errorf("resolve zone %s: %w", zone, err)
	}
	return uint32(link.Index), nil
}
