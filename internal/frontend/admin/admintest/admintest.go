// Package admintest serves the administrator's API for tests.
package admintest

import (
	"context"
	"path/filepath"
	"testing"

	"fairlead/internal/frontend/admin"
)

// Serve serves the daemon's API on a socket until the test ends. The test fails if
// the server returns an error.
func Serve(t testing.TB, d admin.Daemon) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := admin.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- admin.Serve(ctx, l, admin.Handler(d), admin.ConnsPerPeer) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return socket
}
