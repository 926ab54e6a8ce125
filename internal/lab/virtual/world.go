// Package virtual builds hosts on one LAN, one of which has a virtual address, and
// measures who answers for the address and what clients notice when it moves. It gives
// the address to no host: that is what a Keeper does.
//
// # Theory of operation
//
//	client ────┐                  ┌─ a: real server, keeper
//	           ├─ switch (bridge) ┼─ b: …
//	observer ──┘                  └─ c: …
//
// Every host is a network namespace with one link to the switch. A real server on each
// host answers with the host's name. The client connects to the virtual address 1,000
// times per second, each time with a new connection. The observer asks for the address
// with ARP every few milliseconds, and logs each answer with the time at which the
// kernel received it. All hosts have the same clock, so two hosts that answer at the
// same time are seen as such. The address is an IPv4 address.
package virtual

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/topology"
	"fairlead/internal/lab/topology/lan"
	"fairlead/internal/plan"
)

// Port is the TCP port of the real servers.
const Port = 8080

// addr returns an address on the LAN, from a range for documentation (RFC 5737).
func addr(number byte) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, number}) }

// Address is the virtual address. Bits is the prefix length of the LAN.
var Address = addr(200)

const Bits = 24

// The addresses of the client, of the observer, and of what the hosts share.
var (
	clientAddr   = addr(1)
	observerAddr = addr(2)
	sharedAddr   = addr(3)
)

// names are the hosts that can have the address; their addresses follow firstHost.
var names = []string{"a", "b", "c"}

const firstHost = 10

// Keeper is a program that runs on every host and gives the virtual address to one of
// them.
type Keeper interface {
	// Keep starts the program on a host, below the cgroup of the place.
	Keep(ctx context.Context, h *Host, at child.Place) (*child.Process, error)
	// Give makes the host's program give the address to another host, as an
	// administrator would.
	Give(ctx context.Context, h *Host) error
}

// Shared is a Keeper whose hosts share something that runs on a further host.
type Shared interface {
	Keeper
	// Share starts it, before Keep is called for the first time.
	Share(ctx context.Context, at child.Place, addr netip.Addr) error
	// Unshare ends it, after the hosts' programs have been killed.
	Unshare() error
}

// Options are the options of a world.
type Options struct {
	Facts  plan.Facts
	Keeper Keeper
	// Groups is nil if the host has no cgroup v2.
	Groups *ledger.Groups
}

// World is a LAN with hosts that can have the virtual address.
type World struct {
	Options
	Hosts []*Host

	lan      *lan.LAN
	client   *lan.Host
	observer *observer
}

// New builds a world, and waits until one host alone answers for the address.
func New(ctx context.Context, opt Options) (w *World, err error) {
	w = &World{Options: opt}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("build hosts with a virtual address: %w", err), w.Close())
			w = nil
		}
	}()
	if err = w.network(); err != nil {
		return w, err
	}
	if err = w.share(ctx); err != nil {
		return w, err
	}
	for _, h := range w.Hosts {
		if err = h.start(ctx); err != nil {
			return w, err
		}
	}
	_, err = w.settled(ctx)
	return w, err
}

// network creates the LAN with its hosts and the observer.
func (w *World) network() (err error) {
	if w.lan, err = lan.New(w.Facts); err != nil {
		return err
	}
	if w.client, err = w.lan.Join("client", clientAddr); err != nil {
		return err
	}
	if err = w.client.Do(topology.MorePorts); err != nil {
		return err
	}
	for i, name := range names {
		h := &Host{Name: name, Addr: addr(byte(firstHost + i)), world: w}
		if h.host, err = w.lan.Join(name, h.Addr); err != nil {
			return err
		}
		if h.mac, err = macOf(h.host); err != nil {
			return err
		}
		w.Hosts = append(w.Hosts, h)
	}
	host, err := w.lan.Join("observer", observerAddr)
	if err != nil {
		return err
	}
	w.observer, err = observe(host, observerAddr, Address)
	return err
}

// share starts what the hosts share, if they share something.
func (w *World) share(ctx context.Context) error {
	s, ok := w.Keeper.(Shared)
	if !ok {
		return nil
	}
	host, err := w.lan.Join("shared", sharedAddr)
	if err != nil {
		return err
	}
	at := host.Place()
	if w.Groups != nil {
		at.Cgroup = w.Groups.Proxy
	}
	return s.Share(ctx, at, sharedAddr)
}

// Ask starts a client that connects to the virtual address.
func (w *World) Ask(ctx context.Context) (*failover.Client, error) {
	at := w.client.Place()
	if w.Groups != nil {
		at.Cgroup = w.Groups.Client
	}
	return failover.StartClient(ctx, netip.AddrPortFrom(Address, Port), at)
}

// patience is the limit of each wait for a host to answer.
const patience = 30 * time.Second

// calm is for how long one host alone must answer before it counts as the holder.
const calm = time.Second

// settled waits until one host alone has answered for a while, and returns it.
func (w *World) settled(ctx context.Context) (*Host, error) {
	var holder *Host
	err := w.await(ctx, "one host to answer alone", func() bool {
		now := time.Now()
		recent := since(w.observer.log(), now.Add(-calm))
		if len(recent) == 0 || now.Sub(recent[len(recent)-1].At) > silence ||
			recent[0].At.Sub(now.Add(-calm)) > silence {
			return false
		}
		holder = w.of(recent[0].MAC)
		for _, a := range recent {
			if a.MAC != recent[0].MAC {
				return false
			}
		}
		return holder != nil
	})
	return holder, err
}

// Holder returns the host that answers for the address alone.
func (w *World) Holder(ctx context.Context) (*Host, error) { return w.settled(ctx) }

// Moved waits until another host than the earlier holder answers.
func (w *World) Moved(ctx context.Context, earlier *Host, event time.Time) error {
	return w.await(ctx, "another host than "+earlier.Name+" to answer", func() bool {
		for _, a := range since(w.observer.log(), event) {
			if a.MAC != earlier.mac {
				return true
			}
		}
		return false
	})
}

// Log returns the answers for the address so far, in the order of time.
func (w *World) Log() []Answer { return w.observer.log() }

// await polls until done returns true.
func (w *World) await(ctx context.Context, what string, done func() bool) error {
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("wait for %s: not within %s%s", what, patience, w.printed())
		}
		if err := w.ended(); err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(askEvery):
		}
	}
	return nil
}

// ended returns an error if the observer has failed.
func (w *World) ended() error {
	w.observer.mu.Lock()
	defer w.observer.mu.Unlock()
	return w.observer.failed
}

// printed returns what the keepers have printed.
func (w *World) printed() (all string) {
	for _, h := range w.Hosts {
		if text := h.Said.Text(); text != "" {
			all += "; on host " + h.Name + ": " + text
		}
	}
	return all
}

// of returns the host with a MAC address, or nil.
func (w *World) of(mac string) *Host {
	for _, h := range w.Hosts {
		if h.mac == mac {
			return h
		}
	}
	return nil
}

// Close ends everything; it continues after errors.
func (w *World) Close() error {
	var errs []error
	if w.observer != nil {
		errs = append(errs, w.observer.close())
	}
	for _, h := range w.Hosts {
		h.close()
	}
	if s, ok := w.Keeper.(Shared); ok {
		errs = append(errs, s.Unshare())
	}
	if w.lan != nil {
		errs = append(errs, w.lan.Close())
	}
	return errors.Join(errs...)
}
