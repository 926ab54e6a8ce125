package networks_test

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/record"
)

// moving is a cluster of three nodes with network web, and an address of the first node's block.
func moving(t *testing.T, test func(w *world, a netip.Addr)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.create()
		w.settle()
		a := w.ranges(0)[0].Addr()
		for range 5 {
			a = a.Next()
		}
		test(w, a)
	})
}

// reserve reserves an address of network web for a node.
func (w *world) reserve(node int, a netip.Addr) (done func(), err error) {
	return w.every[node].ReserveAddresses(w.Context(), "web", []netip.Addr{a})
}

// has returns the node that has the record of an address, or an empty string.
func (w *world) has(a netip.Addr) string {
	w.Helper()
	m, _, err := record.Get[record.Move](w.Snapshot(), record.Key(record.Moves, "web", a.String()))
	if err != nil {
		w.Fatal(err)
	}
	return m.Node
}

// follows fails the test unless all nodes forward an address to a node; with -1, to its block.
func (w *world) follows(a netip.Addr, node int) {
	w.Helper()
	for i, h := range w.hosts {
		for j, p := range h.Networks()[0].Overlay.Peers {
			listed := false
			for _, e := range p.Endpoints {
				listed = listed || slices.Contains(e.Addresses, a)
			}
			if listed != (j == node) {
				w.Errorf("node %d: node %d has the address: %t", i, j, listed)
			}
		}
	}
}

// refused fails the test unless a reservation failed for a reason.
func (w *world) refused(err error, why string) {
	w.Helper()
	if err == nil || !strings.Contains(err.Error(), why) {
		w.Errorf("got %v, want %q", err, why)
	}
}

// TestFrozenLeasesNothing asks for addresses of network web, and for any one, while the host may not act as its node.
func TestFrozenLeasesNothing(t *testing.T) {
	moving(t, func(w *world, a netip.Addr) {
		w.frozen = "another host acts as this node"
		for _, addrs := range [][]netip.Addr{{a}, nil} {
			_, err := w.every[0].ReserveAddresses(w.Context(), "web", addrs)
			w.refused(err, "this host is frozen: another host acts as this node")
		}
		if _, err := w.every[0].ReserveAddresses(w.Context(), "own", nil); err != nil {
			w.Errorf("a network of the host's own: %v", err)
		}
		w.frozen = ""
		if _, err := w.every[0].ReserveAddresses(w.Context(), "web", nil); err != nil {
			w.Errorf("a host that is not frozen any more: %v", err)
		}
	})
}

// TestAddressMoves moves an address from the block's node to others, and back. Its record is deleted when
// no attachment has it, also if a daemon ended before it attached the sandbox.
func TestAddressMoves(t *testing.T) {
	moving(t, func(w *world, a netip.Addr) {
		done, err := w.reserve(1, a)
		if err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.follows(a, 1)
		w.hosts[1].attach("shop", a.String())
		done()
		w.settle()
		w.follows(a, 1)
		if _, err := w.reserve(2, a); api.CodeOf(err) != api.Conflict {
			t.Errorf("the code is %v", api.CodeOf(err))
		} else {
			w.refused(err, "shop on node n1 has it")
		}
		w.hosts[1].mu.Lock()
		w.hosts[1].attached = nil // the node has not deleted the record
		w.hosts[1].mu.Unlock()
		if done, err = w.reserve(2, a); err != nil || w.has(a) != "n2" {
			t.Fatalf("%s has the address, %v", w.has(a), err)
		}
		synctest.Wait() // the reservation does not wait for the node that had it
		w.follows(a, 2)
		w.start(2) // in place of a killed daemon
		w.settle()
		if w.follows(a, -1); w.has(a) != "" {
			t.Errorf("%s has an address that nothing uses", w.has(a))
		}
		done()
		if done, err = w.reserve(2, a); err != nil {
			t.Fatal(err)
		}
		done() // the sandbox was not attached
		if home, err := w.reserve(0, a); err != nil || w.has(a) != "" {
			t.Errorf("%s has the address, %v", w.has(a), err)
		} else {
			w.hosts[0].attach("shop", a.String())
			home()
		}
		w.settle()
		w.follows(a, -1)
		_, err = w.reserve(1, a)
		w.refused(err, "shop on node n0 has it: detach that one")
		w.settle()
		if w.has(a) != "" {
			t.Error("the record of a refused request stays")
		}
	})
}

// TestOneOfManyGetsAddress requests an address on two nodes at once, many times.
func TestOneOfManyGetsAddress(t *testing.T) {
	moving(t, func(w *world, a netip.Addr) {
		for range 50 {
			dones, errs := make([]func(), 3), make([]error, 3)
			var all sync.WaitGroup
			for _, i := range []int{1, 2} {
				all.Go(func() { dones[i], errs[i] = w.reserve(i, a) })
			}
			all.Wait()
			if (errs[1] == nil) == (errs[2] == nil) {
				t.Fatalf("two nodes request an address: %v, %v", errs[1], errs[2])
			}
			for _, done := range dones {
				if done != nil {
					done()
				}
			}
		}
	})
}

// TestAddressIsRefused requests addresses that may be in use.
func TestAddressIsRefused(t *testing.T) {
	moving(t, func(w *world, a netip.Addr) {
		_, err := w.reserve(1, w.hosts[0].Networks()[0].Subnets[0].HostAddress())
		w.refused(err, "the host on node n0 has it")
		w.silent = "n0"
		_, err = w.reserve(1, a)
		w.refused(err, "remove it from the cluster with `fairlead cluster rm n0`")
		w.silent = ""
		w.every[0].LeasesOf(leased{a})
		_, err = w.reserve(1, a)
		w.refused(err, "a container on node n0 has it")
		w.every[0].LeasesOf(nil)
		w.clients[1].Set(kvtest.Refused)
		_, err = w.reserve(1, a)
		w.refused(err, "try again when etcd answers")
		if done, err := w.reserve(1, w.ranges(1)[0].Addr().Next().Next()); err != nil {
			t.Errorf("without etcd, an address of the node's own block: %v", err)
		} else {
			done()
		}
		w.clients[1].Set(kvtest.Works)
		w.put(w.clients[0], record.Key(record.Nodes, "n1"), record.Node{ID: "n1", Name: "n1", Drained: true,
			Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}})
		w.settle()
		_, err = w.reserve(1, a)
		w.refused(err, "this host is drained")
		w.settle()
		if w.has(a) != "" {
			t.Error("the record of a refused request stays")
		}
	})
}

// leased are addresses that are leased to containers.
type leased []netip.Addr

// Leased implements networks.Lessor.
func (l leased) Leased(network string, a netip.Addr) bool {
	return network == "web" && slices.Contains(l, a)
}

// TestMissingRecordIsPut deletes the record of an attached address, as a restored store does.
func TestMissingRecordIsPut(t *testing.T) {
	moving(t, func(w *world, a netip.Addr) {
		w.hosts[1].attach("shop", a.String())
		w.settle()
		if w.follows(a, 1); w.has(a) != "n1" {
			t.Errorf("%s has the address", w.has(a))
		}
		w.hosts[2].attach("other", a.String())
		time.Sleep(every)
		w.settle()
		w.follows(a, 1)
	})
}

// TestAddressIsRefusedBeforeSnapshot requests addresses from a daemon that has started, and has no snapshot yet.
func TestAddressIsRefusedBeforeSnapshot(t *testing.T) {
	moving(t, func(w *world, a netip.Addr) {
		own := w.ranges(1)[0].Addr().Next().Next()
		late := make(chan struct{})
		w.hosts[1].mu.Lock()
		w.hosts[1].late = late
		w.hosts[1].mu.Unlock()
		w.start(1)
		synctest.Wait()
		_, err := w.reserve(1, a)
		w.refused(err, "this host has no records")
		if done, err := w.reserve(1, own); err != nil {
			t.Errorf("an address of the node's own block: %v", err)
		} else {
			done()
		}
		w.hosts[1].attach("shop", a.String())
		if done, err := w.reserve(1, a); err != nil {
			t.Errorf("an address that is attached: %v", err)
		} else {
			done()
		}
		close(late)
	})
}

// TestUsedAddressIsNotTaken attaches a sandbox with an address that the block's node uses, and that has no record.
func TestUsedAddressIsNotTaken(t *testing.T) {
	moving(t, func(w *world, a netip.Addr) {
		w.hosts[0].attach("db", a.String())
		w.settle()
		w.hosts[1].attach("shop", a.String())
		w.settle()
		if w.follows(a, -1); w.has(a) != "" {
			t.Errorf("%s takes the address from the node that uses it", w.has(a))
		}
	})
}

// TestMovedAddressesReadViewsOnce counts how often a host's attachments are read while nothing happens. That does not
// depend on how many addresses have moved to the host.
func TestMovedAddressesReadViewsOnce(t *testing.T) {
	moving(t, func(w *world, a netip.Addr) {
		moved := func(n int) (views int) {
			for range n {
				done, err := w.reserve(1, a)
				if err != nil {
					t.Fatal(err)
				}
				w.hosts[1].attach("shop"+a.String(), a.String())
				done()
				a = a.Next()
			}
			w.settle()
			h := w.hosts[1]
			h.mu.Lock()
			before := h.views
			h.mu.Unlock()
			w.settle()
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.views - before
		}
		few := moved(1)
		if many := moved(10); many != few {
			t.Errorf("with one moved address the attachments are read %d times, with eleven %d times", few, many)
		}
		for range 11 {
			if a = a.Prev(); w.has(a) != "n1" {
				t.Errorf("%s has %s, want n1", w.has(a), a)
			}
		}
	})
}
