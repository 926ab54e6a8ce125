package proxy

import (
	"errors"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// group is a listener of the configuration. The sockets of its port range share
// it.
type group struct {
	plan.Listener
	target sockaddr // without a port
	// counts has one entry per worker.
	counts []tally
	// ended is set before the workers end the group's connections, so that a
	// connection that is being moved between workers is ended, too.
	ended atomic.Bool
}

// socketKey is the protocol and address that a socket is bound to.
type socketKey struct {
	proto model.Proto
	addr  netip.AddrPort
}

// wildcards returns the other keys that cover k: the wildcard of its family, and
// the wildcard of both families.
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

// dual reports whether k is the wildcard of both families on one socket.
func (k socketKey) dual() bool { return !k.addr.Addr().IsValid() }

func (k socketKey) wildcard() bool { return k.dual() || k.addr.Addr().IsUnspecified() }

// fail returns a *BindError for k.
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
	// open is true if clients can use the socket (TCP: it listens).
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

// streamOptions are set on both sides of a connection. An accepted socket
// inherits them from its listener, so for clients they cost nothing. Keepalive
// closes connections to peers that have vanished, after 60 s of silence and the
// kernel's default probes. Each further option would be one more system call per
// connection.
var streamOptions = [...]option{
	{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
	{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
	{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 60},
}

// newSocket opens an unbound socket for the key's family and protocol.
// IPV6_V6ONLY leaves IPv4 to a separate socket, unless the key is dual.
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

// binder binds sockets. Its value is the key that the eBPF hooks at bind require
// for a port that is still published via ebpf (Config.BindKey); 0 if there are
// no hooks.
type binder uint64

// bindTo binds to an address. The socket carries the key only during the call.
// A process that may not set the options binds without the key.
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

// bindAlone binds a socket whose address overlaps none of the proxy's sockets.
//
// A UDP socket never has SO_REUSEADDR: two programs that both set it
// would share the port. A TCP listener has it, so that connections of an earlier
// proxy in TIME_WAIT do not prevent it from starting. The kernel still refuses a
// port on which any process listens.
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

// bindReused reserves a TCP port that is in use, perhaps only by connections.
// While a socket is bound with SO_REUSEADDR and does not listen, the kernel marks
// the whole port as shareable. Listening for a moment clears the mark, and fails
// if another process listens. Then SO_REUSEADDR is cleared, and no other socket
// can bind the port.
func (b binder) bindReused(fd int, k socketKey) error {
	_ = setReuse(fd, 1)
	if err := b.bindTo(fd, k); err != nil {
		return err
	}
	if err := unix.Listen(fd, 0); err != nil {
		return err
	}
	return stopListening(fd)
}

// stopListening turns a listening TCP socket into a reservation.
func stopListening(fd int) error {
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

// bindOverUDP sets SO_REUSEADDR on the proxy's own sockets only while it binds.
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

// limitQueue makes a UDP socket keep its port but queue almost nothing: the kernel
// rounds the buffer up to its minimum, about two packets, and drops the rest.
// Connecting the socket to itself would queue nothing at all, but would narrow a
// wildcard address. A socket filter takes twice the time of all other calls for
// a port.
func limitQueue(fd int) error {
	if e := setOption(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0); e != 0 {
		return e
	}
	drain(fd)
	return nil
}

// enlargeQueue undoes limitQueue.
func enlargeQueue(fd int) error {
	drain(fd)
	if e := setOption(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, queueBytes); e != 0 {
		return e
	}
	return nil
}

// drain discards the queued datagrams. The limit is for senders that are faster
// than the loop.
func drain(fd int) {
	var sink [1]byte
	for range 1 << 12 {
		if _, e := receive(fd, sink[:]); e != 0 {
			return
		}
	}
}
