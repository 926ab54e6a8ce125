package topology_test

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"fairlead/internal/kernel"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// TestEnginesLeaveWiresAlone: an engine on each host removes links that carry
// Fairlead's mark and are not desired, but not the wires.
func TestEnginesLeaveWiresAlone(t *testing.T) {
	w := newWorld(t)
	if err := w.AddSecondWire(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Engine.Set(t.Context(), model.State{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ClientEngine().Set(t.Context(), model.State{}); err != nil {
		t.Fatal(err)
	}
	for _, server := range []netip.Addr{topology.ServerAddr4, topology.ServerAddr6, topology.ServerSecond4,
		topology.ServerSecond6} {
		if err := dial(t.Context(), w, server); err != nil {
			t.Errorf("dial %s: %v", server, err)
		}
	}
	for _, link := range []string{topology.Wire, topology.SecondWire} {
		if n, err := w.LinkBytes(link); err != nil || n == 0 {
			t.Errorf("link %s carried %d bytes, %v", link, n, err)
		}
	}
}

// TestDeviceHasNoAddress: the device has no address of the host that it is taken
// from.
func TestDeviceHasNoAddress(t *testing.T) {
	w := newWorld(t)
	if err := w.AddDevice(); err != nil {
		t.Fatal(err)
	}
	if err := dial(t.Context(), w, topology.ServerSecond4); err == nil {
		t.Errorf("the server answered at %s", topology.ServerSecond4)
	}
}

func newWorld(t *testing.T) *topology.World {
	t.Helper()
	facts, err := kernel.Probe()
	if err != nil {
		t.Fatal(err)
	}
	w, err := topology.New(facts, topology.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// dial connects the client host to a listener on the server host.
func dial(ctx context.Context, w *topology.World, server netip.Addr) error {
	var listen net.ListenConfig
	var listener net.Listener
	err := w.DoServer(func() (err error) {
		listener, err = listen.Listen(ctx, "tcp", netip.AddrPortFrom(server, 0).String())
		return err
	})
	if err != nil {
		return err
	}
	defer listener.Close()
	return w.DoClient(func() error {
		conn, err := net.DialTCP("tcp", nil, listener.Addr().(*net.TCPAddr))
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}
