package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Watcher records changes in the host's namespace and in every namespace that has
// an id there (RTM_GETNSID).
//
// Theory of operation. An event only says which object to check, not what to do.
// Every netlink message is about one object (a link, an address, a route, a
// queueing discipline) and contains its new state. The Watcher keeps the latest
// state per object. The caller takes the events while no plan is being applied and
// compares each one with the desired state. Therefore events about Fairlead's own
// changes have no effect. One thing is kept in addition because the latest state
// does not show it: a link that was down for a moment has lost its routes although
// it is up again.
//
// The kernel sends no events for sysctls and for detached eBPF programs. Check
// polls those with system calls on files that are already open.
//
// Kernel: 4.2 (NETLINK_LISTEN_ALL_NSID).
type Watcher struct {
	host    *Host
	sockets []*eventSocket
	// noted contains an element while there are events to take.
	noted chan struct{}

	mu sync.Mutex
	// links are the known links, by the id of their namespace and their index
	// there. Messages about addresses and routes identify a link only by these.
	links    map[linkID]*linkState
	seen     PendingEvents
	settings map[string]setting
	// linkSettings are the settings of links that Check reads, and linksChecked is
	// when it read them last.
	linkSettings []linkSpec
	linksChecked time.Time
	// ipvsChecked is when Check last read IPVS.
	ipvsChecked time.Time
	// legacy are hashes of the filter tables of iptables-legacy.
	legacy [2]uint64
}

// rtnlGroups are the rtnetlink groups that report changes of objects in plans.
var rtnlGroups = []int{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_TC, unix.RTNLGRP_NSID}

// eventBuffer is the size of the socket's receive buffer in bytes. It has room for
// thousands of messages, as on a host that takes over a thousand endpoints.
const eventBuffer = 16 << 20

// Watch records changes until ctx ends.
func (h *Host) Watch(ctx context.Context) (*Watcher, error) {
	w := &Watcher{host: h, noted: make(chan struct{}, 1), links: map[linkID]*linkState{},
		settings: map[string]setting{}}
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
	if err != nil || w.host.nft.Available() != nil {
		return err
	}
	rules := eventSocket{parse: w.noteRules}
	if err := w.host.ns.Do(func() error {
		return rules.open(unix.NETLINK_NETFILTER, false,
			unix.NFNLGRP_NFTABLES)
	}); err != nil {
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

// Noted returns a channel that has an element while there are events to take.
func (w *Watcher) Noted() <-chan struct{} { return w.noted }

// follow records the messages from a socket until the socket is closed.
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

// notify wakes the receiver of Noted.
func (w *Watcher) notify() {
	select {
	case w.noted <- struct{}{}:
	default:
	}
}

// drain records all messages that are in the socket, and reports whether there were
// any.
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

// Take returns the events since its last call, up to this moment, and resets them.
// They include the events that this process's own changes have caused so far. It is
// safe for concurrent use.
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

// learnLinks records the host's links, so that messages about addresses can be
// matched to them.
func (w *Watcher) learnLinks() error {
	handle, err := w.host.rtnl.At("")
	if err != nil {
		return err
	}
	list, err := nlutil.Retry(handle.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range list {
		w.links[linkID{netns.NoID, l.Attrs().Index}] = stateOf(l)
	}
	return nil
}

func stateOf(l netlink.Link) *linkState {
	a := l.Attrs()
	return &linkState{name: a.Name, up: rtnl.IsUp(l), mtu: uint32(a.MTU), mac: a.HardwareAddr.String(), alias: a.Alias,
		master: a.MasterIndex, kind: l.Type(), loopback: a.RawFlags&unix.IFF_LOOPBACK != 0}
}

// eventSocket is a netlink socket that receives events.
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

// receive returns the messages of one datagram and the id of the namespace that
// they are about. It does not block.
func (s *eventSocket) receive() (messages []byte, namespace int, err error) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return nil, netns.NoID, err
	}
	namespace = netns.NoID
	failed := raw.Control(func(fd uintptr) {
		var n, oobn int
		if n, oobn, _, _, err = unix.Recvmsg(int(fd), s.buf, s.oob[:], unix.MSG_DONTWAIT); err == nil {
			messages = s.buf[:n]
			namespace = namespaceOf(s.oob[:oobn])
		}
	})
	return messages, namespace, errors.Join(failed, err)
}

// namespaceOf returns the namespace id in a message's control data. Messages about
// the socket's own namespace have none; for these it returns netns.NoID.
func namespaceOf(oob []byte) int {
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netns.NoID
	}
	for _, c := range controls {
		if c.Header.Level == unix.SOL_NETLINK && c.Header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(c.Data) >= 4 {
			return int(int32(binary.NativeEndian.Uint32(c.Data)))
		}
	}
	return netns.NoID
}
