package load

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// datagramRoom is the socket buffer asked for on UDP sockets, so that a burst
// of a batch is not lost to the default of 208 KiB.
const datagramRoom = 4 << 20

// open makes a raw blocking descriptor for the family of addr with our time
// limits on it. Receiving wakes up every tick to look around; sending and
// connecting give up after patience.
func open(addr netip.Addr, kind int) (int, error) {
	family := unix.AF_INET6
	if addr.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := limit(fd, kind); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func limit(fd, kind int) error {
	if err := setTimeout(fd, unix.SO_RCVTIMEO, tick); err != nil {
		return err
	}
	if err := setTimeout(fd, unix.SO_SNDTIMEO, patience); err != nil {
		return err
	}
	if kind != unix.SOCK_DGRAM {
		return nil
	}
	for _, opt := range []int{unix.SO_RCVBUF, unix.SO_SNDBUF} {
		if err := setInt(fd, unix.SOL_SOCKET, opt, datagramRoom); err != nil {
			return err
		}
	}
	return nil
}

func setTimeout(fd, opt int, d time.Duration) error {
	tv := unix.NsecToTimeval(int64(d))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, opt, &tv); err != nil {
		return fmt.Errorf("set socket time limit: %w", err)
	}
	return nil
}

func setInt(fd, level, opt, v int) error {
	if err := unix.SetsockoptInt(fd, level, opt, v); err != nil {
		return fmt.Errorf("set socket option %d/%d: %w", level, opt, err)
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
	sa, err := sockaddr(target)
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	if err := retryConnect(fd, sa); err != nil {
		unix.Close(fd)
		return -1, failed("connect", target, err)
	}
	return fd, nil
}

// retryConnect connects through interruptions: after EINTR the kernel goes on
// connecting, and a second connect(2) waits for that.
func retryConnect(fd int, sa unix.Sockaddr) error {
	err := unix.Connect(fd, sa)
	for err == unix.EINTR || err == unix.EALREADY {
		err = unix.Connect(fd, sa)
	}
	if err == unix.EISCONN {
		return nil
	}
	return err
}

func sockaddr(ap netip.AddrPort) (unix.Sockaddr, error) {
	if ap.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}, nil
	}
	sa := &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}
	if zone := ap.Addr().Zone(); zone != "" {
		id, err := zoneIndex(zone)
		if err != nil {
			return nil, err
		}
		sa.ZoneId = id
	}
	return sa, nil
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

// localAddr is where fd is bound.
func localAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
	}
	return addrPort(sa), nil
}

func zoneIndex(zone string) (uint32, error) {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	link, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, fmt.Errorf("resolve zone %s: %w", zone, err)
	}
	return uint32(link.Index), nil
}
