// Package watch records the kernel's messages about changes of links, addresses,
// routes and nftables, and compares them with the objects of a plan. It reads and
// never changes the kernel's state.
package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
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
	ns      *netns.Namespace
	cfg     Config
	sockets []*eventSocket
	// noted contains an element while there are events to take.
	noted chan struct{}
	// rules contains an element if another program has changed rules since the last receive.
	rules chan struct{}

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
	// polls means that Check compares unreported.
	polls      bool
	unreported string
}

// rtnlGroups are the rtnetlink groups that report changes of objects in plans.
var rtnlGroups = []int{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_TC, unix.RTNLGRP_NSID}

// Config contains what a Watcher reads besides the kernel's messages.
type Config struct {
	// Net reads the host's links and their settings.
	Net *rtnl.Reader
	// NFT is the process's connection to nftables, if the host has them. Changes
	// from its netlink port are not recorded.
	NFT interface {
		Available() error
		Port() uint32
	}
	// EBPF reports whether Fairlead's programs are attached and pinned, and whether
	// their maps contain what Fairlead has written.
	EBPF func() (attached, intact bool)
	// IPVS has one function for each kind of object that IPVS needs. It reports
	// whether one of these objects differs from what this process has set.
	IPVS []func() (bool, error)
	// Legacy returns a hash of the filter table of iptables-legacy of an address family.
	Legacy func(v4 bool) (uint64, error)
	// Unreported describes what decides about packets and of which the kernel sends no
	// messages, such as all tables of iptables-legacy: see PollRules.
	Unreported func() string
	// Concerns reports whether the events show that the object differs.
	Concerns func(*Matcher, plan.Object) bool
}

// New returns a Watcher that records changes in the namespace until ctx ends.
func New(ctx context.Context, cfg Config) (*Watcher, error) {
	w := newWatcher(cfg)
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

func newWatcher(cfg Config) *Watcher {
	return &Watcher{ns: cfg.Net.Netns(), cfg: cfg, noted: make(chan struct{}, 1), rules: make(chan struct{}, 1),
		links: map[linkID]*linkState{}, settings: map[string]setting{}}
}

func (w *Watcher) open() error {
	routes := eventSocket{parse: w.noteRoute}
	err := w.ns.Do(func() error { return routes.open(unix.NETLINK_ROUTE, true, rtnlGroups...) })
	if err != nil {
		return err
	}
	w.sockets = append(w.sockets, &routes)
	neighbors := eventSocket{parse: w.noteNeighbor}
	err = w.ns.Do(func() error { return neighbors.open(unix.NETLINK_ROUTE, false) })
	if err == nil {
		w.sockets = append(w.sockets, &neighbors)
		err = neighbors.onlyFixedNeighbors()
	}
	if err != nil {
		return err
	}
	err = w.openPolicies()
	if err != nil || w.cfg.NFT.Available() != nil {
		return err
	}
	rules := eventSocket{parse: w.noteRules}
	err = w.ns.Do(func() error { return rules.open(unix.NETLINK_NETFILTER, false, unix.NFNLGRP_NFTABLES) })
	if err != nil {
		return err
	}
	w.sockets = append(w.sockets, &rules)
	return nil
}

// openPolicies subscribes to changes of IPsec policies, also to those that expire, if
// the kernel supports IPsec.
func (w *Watcher) openPolicies() error {
	policies := eventSocket{parse: w.notePolicy}
	err := w.ns.Do(func() error {
		return policies.open(unix.NETLINK_XFRM, false, nl.XFRMNLGRP_POLICY, nl.XFRMNLGRP_EXPIRE)
	})
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	if err == nil {
		w.sockets = append(w.sockets, &policies)
	}
	return err
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

// RulesChanged returns a channel that has an element if another program has changed
// nftables, IPsec policies or, if they are polled, unreported rules, or may have, since the
// last receive.
func (w *Watcher) RulesChanged() <-chan struct{} { return w.rules }

// NoteRules makes RulesChanged receive an element.
func (w *Watcher) NoteRules() {
	select {
	case w.rules <- struct{}{}:
	default:
	}
}

// NoteTable notes one of Fairlead's nft tables as changed, so that all its objects are read.
func (w *Watcher) NoteTable(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.noteTable(name)
	w.notify()
}

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
			w.NoteRules()
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
	seen.concerns = w.cfg.Concerns
	w.seen = PendingEvents{}
	return seen
}

// learnLinks records the host's links, so that messages about addresses can be
// matched to them.
func (w *Watcher) learnLinks() error {
	list, err := w.cfg.Net.ListLinks("")
	if err != nil {
		return err
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
		group: a.Group, master: a.MasterIndex, kind: l.Type(), loopback: a.RawFlags&unix.IFF_LOOPBACK != 0}
}
