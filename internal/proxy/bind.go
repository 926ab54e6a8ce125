package proxy

import (
	"errors"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// group is a listener of the configuration: what the sockets of a port range
// share.
type group struct {
	plan.Listener
	target sockaddr // without a port
	// counts are those of each worker.
	counts []tally
	// ended is set before the workers end the group's connections, so that
	// one on its way between workers does not slip through.
	ended atomic.Bool
}

// socketKey names what a socket is bound to.
type socketKey struct {
	proto model.Proto
	addr  netip.AddrPort
}

// wildcards are the other keys that cover k: every address of its family,
// and every address of both.
func (k socketKey) wildcards() []socketKey {
	if k.dual() {
		return nil
	}
	both := socketKey{k.proto, netip.AddrPortFrom(netip.Addr{}, k.addr.Port())}
	if k.wildcard() {
		return []socketKey{both}
	}
	family := netip.IPv6Unspecified()
	if k.addr.Addr().Is4() {
		family = netip.IPv4Unspecified()
	}
	return []socketKey{{k.proto, netip.AddrPortFrom(family, k.addr.Port())}, both}
}

// dual says that k is both families' addresses, on one socket.
func (k socketKey) dual() bool { return !k.addr.Addr().IsValid() }

func (k socketKey) wildcard() bool { return k.dual() || k.addr.Addr().IsUnspecified() }

// fail wraps an errno for the user.
func (k socketKey) fail(err error) error {
	if k.dual() {
		k.addr = netip.AddrPortFrom(netip.IPv6Unspecified(), k.addr.Port())
	}
	return &BindError{k.proto, k.addr, err}
}

// socket is a bound host port: a listener's (group is set) or a reservation.
type socket struct {
	fd     int
	group  *group
	offset uint16 // of the port in the group's range
	// open says that clients are let in (TCP: listening).
	open  bool
	owner *worker
	slot  slotID
}

// ready serves a listening socket's event.
func (s *socket) ready(w *worker, _ uint32, _ direction) {
	if s.group.Proto == model.UDP {
		s.receive(w)
	} else {
		s.accept(w)
	}
}

type option struct{ level, name, value int }

// streamOptions are for both sides of a connection. An accepted socket has
// its listener's, so for clients they cost nothing. Keepalive reaps peers
// that vanished, after 60 s of silence and the kernel's usual probes; each
// further option would be one more system call a connection.
var streamOptions = [...]option{
	{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
	{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
	{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 60},
}

// newSocket opens an unbound socket of the key's kind. IPV6_V6ONLY leaves
// the IPv4 half of the port to the IPv4 socket, unless one holds both.
func newSocket(k socketKey, at place) (*socket, error) {
	family, kind := unix.AF_INET, unix.SOCK_STREAM
	if !k.addr.Addr().Is4() {
		family = unix.AF_INET6
	}
	if k.proto == model.UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, e := socketOf(family, kind)
	if e != 0 {
		return nil, e
	}
	if family == unix.AF_INET6 {
		only := 1
		if k.dual() {
			only = 0
		}
		e = setOption(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only)
	}
	if e == 0 && k.proto == model.UDP {
		e = prepareUDP(fd, k, at.group != nil)
	}
	if e != 0 {
		closeFD(fd)
		return nil, e
	}
	return &socket{fd: fd, group: at.group, offset: at.offset, open: k.proto == model.UDP}, nil
}

// binder binds sockets. It is the key that the eBPF hooks at bind ask for where
// a port is still published via ebpf (Config.BindKey); 0 if there are no hooks.
type binder uint64

// bindTo binds to an address. The socket has the key until then. A process that
// may not set the options binds without the key.
func (b binder) bindTo(fd int, k socketKey) error {
	to, err := newSockaddr(k.addr.Addr(), k.addr.Port())
	if err != nil {
		return err
	}
	if b != 0 && b.setKey(fd) == 0 {
		defer binder(0).setKey(fd)
	}
	if e := bindFD(fd, &to); e != 0 {
		return e
	}
	return nil
}

// setKey writes the halves of the key into SO_MARK and SO_PRIORITY.
func (b binder) setKey(fd int) unix.Errno {
	if e := setOption(fd, unix.SOL_SOCKET, unix.SO_MARK, int(int32(b))); e != 0 {
		return e
	}
	return setOption(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, int(int32(b>>32)))
}

// setReuse sets SO_REUSEADDR.
func setReuse(fd int, on int) unix.Errno {
	return setOption(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, on)
}

// bindAlone binds a socket whose address overlaps none of ours.
//
// A UDP socket never has SO_REUSEADDR: with it two programs that both set it
// share the port. A TCP listener has it, so that connections of a previous
// life in TIME_WAIT do not keep it from starting; a port on which anyone
// listens is refused all the same.
func (b binder) bindAlone(fd int, k socketKey, listener bool) error {
	if k.proto == model.TCP && listener {
		_ = setReuse(fd, 1)
	}
	err := b.bindTo(fd, k)
	if k.proto == model.TCP && !listener && errors.Is(err, unix.EADDRINUSE) {
		return b.bindReused(fd, k)
	}
	return err
}

// bindReused reserves a TCP port that is busy, but perhaps only with
// connections. While we are bound with SO_REUSEADDR and do not listen, the
// kernel remembers for the whole port that it can be shared. Listening for a
// moment ends that, and is refused if anyone else listens; without
// SO_REUSEADDR from then on, we hold the port against everyone.
func (b binder) bindReused(fd int, k socketKey) error {
	_ = setReuse(fd, 1)
	if err := b.bindTo(fd, k); err != nil {
		return err
	}
	if err := unix.Listen(fd, 0); err != nil {
		return err
	}
	return unlisten(fd)
}

// unlisten turns a listening TCP socket into a reservation.
func unlisten(fd int) error {
	if e := setReuse(fd, 0); e != 0 {
		return e
	}
	return unix.Shutdown(fd, unix.SHUT_RD)
}

// bindOver binds a socket to an address that overlaps addresses of this proxy's
// other sockets. The kernel does not distinguish them from sockets of other
// processes, so the caller must make sure first that no other process has the
// address.
func (b binder) bindOver(fd int, k socketKey, ours []*socket) error {
	if k.proto == model.UDP {
		return b.bindOverUDP(fd, k, ours)
	}
	// Repair mode skips the conflict check; leaving it clears SO_REUSEADDR.
	if e := setOption(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_ON); e != 0 {
		return e
	}
	if err := b.bindTo(fd, k); err != nil {
		return err
	}
	if e := setOption(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_OFF_NO_WP); e != 0 {
		return e
	}
	return nil
}

// bindOverUDP lets ours share the address just while it is bound.
func (b binder) bindOverUDP(fd int, k socketKey, ours []*socket) error {
	fds := []int{fd}
	for _, s := range ours {
		fds = append(fds, s.fd)
	}
	defer func() {
		for _, fd := range fds {
			_ = setReuse(fd, 0)
		}
	}()
	for _, fd := range fds {
		if e := setReuse(fd, 1); e != 0 {
			return e
		}
	}
	return b.bindTo(fd, k)
}

// queueBytes is the receive buffer of UDP sockets that are read: some
// milliseconds of a busy link, for bursts that come while the worker serves
// others.
const queueBytes = 1 << 20

// deafen makes a UDP socket hold its port and queue next to nothing: the
// kernel rounds the buffer up to its minimum, about two packets, and drops
// what comes after. Connecting the socket to itself would let in nothing at
// all, but narrows a wildcard address; a filter costs twice the time of all
// other calls for a port.
func deafen(fd int) error {
	if e := setOption(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0); e != 0 {
		return e
	}
	drain(fd)
	return nil
}

// hear undoes deafen.
func hear(fd int) error {
	drain(fd)
	if e := setOption(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, queueBytes); e != 0 {
		return e
	}
	return nil
}

// drain forgets what a socket has queued. The bound ends a race with senders
// that are faster.
func drain(fd int) {
	var sink [1]byte
	for range 1 << 12 {
		if _, e := receive(fd, sink[:]); e != 0 {
			return
		}
	}
}
