package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Watcher notes what the kernel tells of changes: in the host's namespace, and
// in every one that has an id there (RTM_GETNSID).
//
// Theory of operation. An event says where to look, not what to do. A message
// is about one thing (a link, an address, a route, a queueing discipline), and
// says how that is now; only the last about each is kept. Whoever takes them,
// while nothing is being applied, compares each with what should be, so that
// our own changes, which end as they should, lead nowhere. Only what a state
// cannot tell is kept besides: a link that was down for a moment has lost its
// routes though it is up again.
//
// No message tells of a sysctl or of an eBPF program that is detached. Check
// looks at those, by system calls on what is open anyway.
//
// Kernel: 4.2 (NETLINK_LISTEN_ALL_NSID).
type Watcher struct {
	host    *Host
	sockets []*eventSocket
	// noted has an element while there is something to take.
	noted chan struct{}

	mu sync.Mutex
	// links are those that are known, by the id of their namespace and their
	// index there: messages about addresses and routes have nothing else.
	links    map[linkID]*linkState
	seen     PendingEvents
	settings map[string]setting
	// linkSettings are the settings of links that Check reads, and listed is when
	// it read them last.
	linkSettings []linkSpec
	listed       time.Time
	// balanced is when IPVS was looked at last.
	balanced time.Time
	// legacy are hashes of the filter tables of iptables-legacy.
	legacy [2]uint64
}

// rtnlGroups are the route netlink groups that tell of what plans hold.
var rtnlGroups = []int{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_TC, unix.RTNLGRP_NSID}

// eventBuffer is what the kernel keeps for us at most, in bytes: thousands of
// messages, as from a host that takes over a thousand endpoints.
const eventBuffer = 16 << 20

// Watch begins to note changes, until ctx ends.
func (h *Host) Watch(ctx context.Context) (*Watcher, error) {
	w := &Watcher{host: h, noted: make(chan struct{}, 1), links: map[linkID]*linkState{}, settings: map[string]setting{}}
	err := w.open()
	if err == nil {
		err = w.learnLinks()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch the host's network: %w", err), w.close())
	}
	context.AfterFunc(ctx, func() { _ = w.close() })
	for _, s := range w.sockets {
		go w.follow(s)
	}
	return w, nil
}

func (w *Watcher) open() error {
	routes := eventSocket{parse: w.noteRoute}
	err := w.host.ns.Do(func() error { return routes.open(unix.NETLINK_ROUTE, true, rtnlGroups...) })
	if err != nil {
		return err
	}
	w.sockets = append(w.sockets, &routes)
	neighbors := eventSocket{parse: w.noteNeighbor}
	err = w.host.ns.Do(func() error { return neighbors.open(unix.NETLINK_ROUTE, false) })
	if err == nil {
		w.sockets = append(w.sockets, &neighbors)
		err = neighbors.onlyFixedNeighbors()
	}
	if err != nil || w.host.nft == nil {
		return err
	}
	rules := eventSocket{parse: w.noteRules}
	if err := w.host.ns.Do(func() error { return rules.open(unix.NETLINK_NETFILTER, false, unix.NFNLGRP_NFTABLES) }); err != nil {
		return err
	}
	w.sockets = append(w.sockets, &rules)
	return nil
}

func (w *Watcher) close() error {
	var errs []error
	for _, s := range w.sockets {
		errs = append(errs, s.file.Close())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.settings {
		errs = append(errs, s.file.Close())
	}
	w.settings = nil
	return errors.Join(errs...)
}

// Noted has an element when there is something to take.
func (w *Watcher) Noted() <-chan struct{} { return w.noted }

// follow notes what comes by a socket, until it is closed.
func (w *Watcher) follow(s *eventSocket) {
	raw, err := s.file.SyscallConn()
	for err == nil {
		err = raw.Read(func(uintptr) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			any := w.drain(s)
			if any && !w.seen.empty() {
				w.notify()
			}
			return any
		})
	}
}

// notify wakes whoever waits for something to take.
func (w *Watcher) notify() {
	select {
	case w.noted <- struct{}{}:
	default:
	}
}

// drain notes all that is in the socket, and reports whether anything was.
func (w *Watcher) drain(s *eventSocket) bool {
	any := false
	for {
		messages, ns, err := s.receive()
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS):
			w.seen.all = true // messages were lost
		case err != nil:
			return any
		}
		for len(messages) >= unix.NLMSG_HDRLEN {
			m, rest := nextMessage(messages)
			if m.body == nil {
				break
			}
			s.parse(ns, m)
			messages = rest
		}
		any = true
	}
}

// Take returns what was noted since the last time, up to this moment: also what
// this process's own changes have caused so far.
func (w *Watcher) Take() PendingEvents {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sockets {
		w.drain(s)
	}
	seen := w.seen
	w.seen = PendingEvents{}
	return seen
}

// learnLinks notes the links that the host has, so that messages about their
// addresses can be told apart.
func (w *Watcher) learnLinks() error {
	handle, err := w.host.at("")
	if err != nil {
		return err
	}
	list, err := retry(handle.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range list {
		w.links[linkID{NoSandbox, l.Attrs().Index}] = stateOf(l)
	}
	return nil
}

func stateOf(l netlink.Link) *linkState {
	a := l.Attrs()
	return &linkState{name: a.Name, up: isUp(l), mtu: uint32(a.MTU), mac: a.HardwareAddr.String(), alias: a.Alias,
		master: a.MasterIndex, kind: l.Type(), loopback: a.RawFlags&unix.IFF_LOOPBACK != 0}
}

// eventSocket is a netlink socket that listens.
type eventSocket struct {
	file  *os.File
	parse func(namespace int, m message)
	buf   []byte
	oob   [64]byte
}

// open opens the socket in the calling thread's namespace.
func (s *eventSocket) open(family int, everywhere bool, groups ...int) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, family)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	s.file, s.buf = os.NewFile(uintptr(fd), "netlink"), make([]byte, 64<<10)
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, eventBuffer)
	}
	if err == nil && everywhere {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1)
	}
	for _, g := range groups {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g)
		}
	}
	if err != nil {
		return errors.Join(os.NewSyscallError("listen on netlink", err), s.file.Close())
	}
	return nil
}

// receive returns what one datagram holds, and the id of the namespace that it
// is about; without waiting.
func (s *eventSocket) receive() (messages []byte, namespace int, err error) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return nil, NoSandbox, err
	}
	namespace = NoSandbox
	failed := raw.Control(func(fd uintptr) {
		var n, oobn int
		if n, oobn, _, _, err = unix.Recvmsg(int(fd), s.buf, s.oob[:], unix.MSG_DONTWAIT); err == nil {
			messages = s.buf[:n]
			namespace = namespaceOf(s.oob[:oobn])
		}
	})
	return messages, namespace, errors.Join(failed, err)
}

// namespaceOf returns the id that comes with a message; one of the socket's own
// namespace has none.
func namespaceOf(oob []byte) int {
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return NoSandbox
	}
	for _, c := range controls {
		if c.Header.Level == unix.SOL_NETLINK && c.Header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(c.Data) >= 4 {
			return int(int32(native.Uint32(c.Data)))
		}
	}
	return NoSandbox
}
