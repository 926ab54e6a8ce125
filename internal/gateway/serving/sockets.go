package serving

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"fairlead/internal/gateway/entries"
	model "fairlead/internal/model/gateway"
	"fairlead/internal/unixsock"

	"golang.org/x/sys/unix"
)

// descriptors are the sockets of entry points in a controlling process. They are plain
// numbers: a net.Listener would wake this process at each connection.
type descriptors map[socketName]int

// open returns sockets for the entry points: those in d that still fit, or new ones. Either
// all can be opened, or none is.
func (d descriptors) open(wanted []model.EntryPoint) (descriptors, error) {
	all := descriptors{}
	var missing []model.EntryPoint
	for _, e := range wanted {
		had := descriptors{}
		for _, name := range namesOf(e) {
			if fd, ok := d[name]; ok && fits(fd, e.Address, name.UDP) {
				had[name] = fd
			}
		}
		if len(had) < len(namesOf(e)) {
			missing = append(missing, e)
			continue
		}
		maps.Copy(all, had)
	}
	opened, err := entries.Listen(missing)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	made, err := copies(opened)
	if err != nil {
		return nil, fmt.Errorf("open sockets: %w", err)
	}
	maps.Copy(all, made)
	return all, nil
}

func namesOf(e model.EntryPoint) (names []socketName) {
	udp := strings.HasSuffix(e.Address, "/udp")
	if !udp {
		names = append(names, socketName{e.Name, false})
	}
	if udp || e.HTTP3 != nil {
		names = append(names, socketName{e.Name, true})
	}
	return names
}

// copies returns copies of the sockets.
func copies(of entries.Sockets) (descriptors, error) {
	d := descriptors{}
	for name, s := range of {
		if err := errors.Join(d.add(socketName{name, false}, s.TCP), d.add(socketName{name, true}, s.UDP)); err != nil {
			d.close()
			return nil, err
		}
	}
	return d, nil
}

// add adds a copy of the socket.
func (d descriptors) add(name socketName, of syscall.Conn) error {
	fd, err := duplicate(of)
	if err == nil && fd >= 0 {
		d[name] = fd
	}
	return err
}

// duplicate returns a copy of a socket's descriptor, -1 if the socket is nil.
func duplicate(of syscall.Conn) (int, error) {
	switch s := of.(type) {
	case *net.TCPListener:
		if s == nil {
			return -1, nil
		}
	case *net.UDPConn:
		if s == nil {
			return -1, nil
		}
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return -1, err
	}
	copied := -1
	failed := raw.Control(func(fd uintptr) { copied, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) })
	return copied, errors.Join(failed, err)
}

// fits reports whether the descriptor is a socket for the address. A serving process that
// clients have taken over could return any descriptor.
func fits(fd int, address string, udp bool) bool {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return false
	}
	listens, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if udp != (kind == unix.SOCK_DGRAM) || !udp && (kind != unix.SOCK_STREAM || listens == 0) {
		return false
	}
	at, ok := addressOf(fd)
	return ok && matches(at, address)
}

// addressOf returns the address that a socket is bound to.
func addressOf(fd int) (netip.AddrPort, bool) {
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, false
	}
	switch a := bound.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), true
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)), true
	}
	return netip.AddrPort{}, false
}

// matches reports whether an entry point's address means the one that a socket is bound to.
func matches(at netip.AddrPort, address string) bool {
	address, _, _ = strings.Cut(address, "/")
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || port != 0 && uint16(port) != at.Port() {
		return false
	}
	if host == "" {
		return at.Addr().IsUnspecified()
	}
	wanted, err := netip.ParseAddr(host)
	return err == nil && wanted.Unmap().WithZone("") == at.Addr()
}

// list returns the sockets in a fixed order.
func (d descriptors) list() (names []socketName, fds []int) {
	for name := range d {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b socketName) int {
		return cmp.Or(cmp.Compare(a.Entry, b.Entry), strings.Compare(strconv.FormatBool(a.UDP),
			strconv.FormatBool(b.UDP)))
	})
	for _, name := range names {
		fds = append(fds, d[name])
	}
	return names, fds
}

// closeExcept closes the sockets that are not in kept.
func (d descriptors) closeExcept(kept descriptors) {
	for name, fd := range d {
		if other, ok := kept[name]; !ok || other != fd {
			_ = unix.Close(fd)
		}
	}
}

func (d descriptors) close() { d.closeExcept(nil) }

// received returns the sockets that the names and descriptors are. It closes the descriptors
// if their number is wrong.
func received(names []socketName, fds []int) (descriptors, error) {
	if len(names) != len(fds) {
		unixsock.CloseAll(fds)
		return nil, fmt.Errorf("%d sockets were announced, but %d received", len(names), len(fds))
	}
	d := descriptors{}
	for i, name := range names {
		if _, twice := d[name]; twice {
			unixsock.CloseAll(fds)
			return nil, fmt.Errorf("entry point %s came twice", name.Entry)
		}
		d[name] = fds[i]
	}
	return d, nil
}

// sockets returns the sockets for the gateway, and closes the descriptors.
func (d descriptors) sockets() (entries.Sockets, error) {
	all := entries.Sockets{}
	var failed error
	for name, fd := range d {
		s := all[name.Entry]
		file := os.NewFile(uintptr(fd), name.Entry)
		var made any
		var err error
		if name.UDP {
			made, err = net.FilePacketConn(file)
			s.UDP, _ = made.(*net.UDPConn)
		} else {
			made, err = net.FileListener(file)
			s.TCP, _ = made.(*net.TCPListener)
		}
		if err = errors.Join(err, file.Close()); err != nil {
			failed = errors.Join(failed, fmt.Errorf("entry point %s: %w", name.Entry, err))
		}
		all[name.Entry] = s
	}
	return all, failed
}
