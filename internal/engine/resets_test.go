package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/store"
	"fairlead/test/features"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// postponed replaces the world's engine with one that leaves the resets of clients to the test. later receives their
// functions, and kept is the store.
func postponed(t *testing.T, w *topology.World) (later <-chan func() error, kept engine.Store) {
	t.Helper()
	functions := make(chan func() error, 8)
	kept = &store.Memory{}
	replaceEngine(t, w, kept, func(finish func() error) { functions <- finish })
	return functions, kept
}

// replaceEngine replaces the world's engine as a kill and a start of the daemon do.
func replaceEngine(t *testing.T, w *topology.World, kept engine.Store, later func(func() error)) {
	t.Helper()
	h, err := kernel.Open(fmt.Sprintf("/proc/self/fd/%d", w.Server().Netns.Fd()), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := w.Engine
	w.Engine = engine.New(engine.Config{Kernel: h, Flows: h, Inspector: h, Store: kept, Facts: features.Facts(t),
		Later: later})
	t.Cleanup(func() {
		if err := errors.Join(w.Engine.TearDown(context.Background()), h.Close()); err != nil {
			t.Error(err)
		}
		w.Engine = before
	})
}

// isReset fails the test unless a client that only reads is reset.
func (t talk) isReset() {
	t.t.Helper()
	err := t.conn.SetReadDeadline(time.Now().Add(place.Timeout))
	if err == nil {
		_, err = t.conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.t.Errorf("%s is not reset: %v", t.conn.LocalAddr(), err)
	}
}

// haveVIPs fails the test unless the host has the virtual addresses, or has none of them.
func haveVIPs(t *testing.T, w *topology.World, want bool) {
	t.Helper()
	for _, vip := range vips {
		family := "-6"
		if vip.Is4() {
			family = "-4"
		}
		is := onServer(t, w, fmt.Sprintf("ip %s route show table local %s", family,
			netip.PrefixFrom(vip, vip.BitLen())))
		if (is != "") != want {
			t.Errorf("the host has %s: %q, want it %v", vip, is, want)
		}
	}
}

// visited returns the state with services at the virtual addresses, and the connections of clients to them.
func visited(t *testing.T, w *topology.World, onLink bool) (s model.State, clients []talk) {
	t.Helper()
	s = dual(t, w, model.DriverBridge, "web")
	balanced(t, w, &s, model.PlaneNFT)
	if !onLink {
		for i := range s.Services {
			s.Services[i].Interface = ""
		}
		// The host does not answer for these addresses on the wire.
		sh(t, w.DoClient, fmt.Sprintf("ip route add %s via %s; ip -6 route add %s via %s", vips[0], topology.ServerAddr4,
			vips[1], topology.ServerAddr6))
	}
	mustSet(t, w, s)
	serve(t, in(w, "web"), "web", ":80")
	return s, visit(t, w)
}

// visit opens a connection to each virtual address.
func visit(t *testing.T, w *topology.World) (clients []talk) {
	t.Helper()
	for _, at := range atVIPs(8080) {
		c := dial(t, w.DoClient, model.TCP, at)
		c.hears("web")
		clients = append(clients, c)
	}
	return clients
}

// without returns the state without services.
func without(s model.State) model.State {
	s.Services = nil
	return s
}

// TestClientsAreResetAfterTheStep: a step that removes services returns before their clients are reset. The virtual
// addresses exist until then. Verify finds no difference, and no new client is served.
func TestClientsAreResetAfterTheStep(t *testing.T) {
	for name, onLink := range map[string]bool{"on a link": true, "with a local route": false} {
		t.Run(name, func(t *testing.T) {
			w := world(t)
			later, _ := postponed(t, w)
			s, clients := visited(t, w, onLink)
			mustSet(t, w, without(s))
			haveVIPs(t, w, true)
			undrifted(t, w)
			for _, at := range atVIPs(8080) {
				isClosed(t, w.DoClient, model.TCP, at)
			}
			if err := (<-later)(); err != nil {
				t.Fatal(err)
			}
			for _, c := range clients {
				c.isReset()
			}
			haveVIPs(t, w, false)
			undrifted(t, w)
		})
	}
}

// TestServicesReturnBeforeClientsAreReset adds services again, and removes them again, while the clients of the first
// removal are still to be reset. Each virtual address exists as long as a service or a reset needs it.
func TestServicesReturnBeforeClientsAreReset(t *testing.T) {
	w := world(t)
	later, _ := postponed(t, w)
	s, clients := visited(t, w, true)
	mustSet(t, w, without(s))
	mustSet(t, w, s)
	again := visit(t, w)
	first := <-later
	mustSet(t, w, without(s))
	if err := first(); err != nil {
		t.Fatal(err)
	}
	for _, c := range clients {
		c.isReset()
	}
	haveVIPs(t, w, true)
	mustSet(t, w, s)
	if err := (<-later)(); err != nil {
		t.Fatal(err)
	}
	for _, c := range again {
		c.isReset()
	}
	haveVIPs(t, w, true)
	undrifted(t, w)
	visit(t, w)
}

// TestKilledBeforeClientsAreReset: an engine that is killed before clients are reset leaves virtual addresses. The next
// one removes them.
func TestKilledBeforeClientsAreReset(t *testing.T) {
	for name, onLink := range map[string]bool{"on a link": true, "with a local route": false} {
		t.Run(name, func(t *testing.T) {
			w := world(t)
			_, kept := postponed(t, w)
			s, _ := visited(t, w, onLink)
			mustSet(t, w, without(s))
			haveVIPs(t, w, true)
			replaceEngine(t, w, kept, nil)
			mustSet(t, w, without(s))
			haveVIPs(t, w, false)
			undrifted(t, w)
		})
	}
}

// TestTearDownBeforeClientsAreReset: TearDown removes the virtual addresses, and the reset changes nothing afterwards.
func TestTearDownBeforeClientsAreReset(t *testing.T) {
	w := world(t)
	before := snapshot(t, w)
	later, _ := postponed(t, w)
	s, _ := visited(t, w, true)
	mustSet(t, w, without(s))
	if err := w.Engine.TearDown(t.Context()); err != nil {
		t.Fatal(err)
	}
	unchanged(t, w, before)
	if err := (<-later)(); err != nil {
		t.Fatal(err)
	}
	unchanged(t, w, before)
}
