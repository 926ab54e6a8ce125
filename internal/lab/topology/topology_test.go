package topology_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/test/features"

	"golang.org/x/sys/unix"
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

// TestCloseWithoutCountedHost: a world closes although the host whose eBPF programs are counted could not be opened.
func TestCloseWithoutCountedHost(t *testing.T) {
	w := newWorld(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	err := w.CountEBPFOf("/")
	if failed := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); failed != nil {
		t.Fatal(failed)
	}
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("without files: %v", err)
	}
}

func newWorld(t *testing.T) *topology.World {
	t.Helper()
	facts := features.Facts(t)
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
