package dhcptest

import (
	"context"
	"errors"
	"testing"
	"time"

	"fairlead/internal/dhcp"
)

// timeout is how long a server may take to handle a release, also on a busy machine.
const timeout = time.Minute

// Network is a network with one client.
type Network struct {
	// Client identifies the client.
	Client dhcp.Config
	// Run keeps a lease, as dhcp.Run does.
	Run func(ctx context.Context, c dhcp.Config, notify func(dhcp.Lease)) error
	// Released reports whether the server has received the release of the client's lease.
	Released func() bool
}

// Conform tests what a keeper of leases relies on. start returns a network with a DHCP server, or
// without one.
func Conform(t *testing.T, start func(t *testing.T, server bool) Network) {
	t.Run("a lease is released when the context ends", func(t *testing.T) {
		n := start(t, true)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var leases []dhcp.Lease
		err := n.Run(ctx, n.Client, func(l dhcp.Lease) {
			if n.Released() {
				t.Error("the lease is released before it is reported")
			}
			leases = append(leases, l)
			cancel()
		})
		if err != nil || len(leases) != 1 || len(leases[0].Prefixes) != 1 || len(leases[0].Gateways) != 1 {
			t.Errorf("leases: %+v, %v, want one", leases, err)
		}
		for end := time.Now().Add(timeout); !n.Released(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the lease is not released")
			}
		}
	})
	t.Run("no server answers", func(t *testing.T) {
		n := start(t, false)
		err := n.Run(t.Context(), n.Client, func(l dhcp.Lease) { t.Errorf("leased %+v", l) })
		if !errors.Is(err, dhcp.ErrNoServer) {
			t.Errorf("%v, want %v", err, dhcp.ErrNoServer)
		}
	})
}
