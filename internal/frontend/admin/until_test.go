package admin_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"fairlead/internal/frontend/admin"
)

// TestServerEndsDespiteASilentClient checks that a connection without a request does
// not delay the end of the server.
func TestServerEndsDespiteASilentClient(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := admin.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- admin.Serve(ctx, l, admin.Handler(new(fake).daemon()), admin.ConnsPerPeer) }()
	if _, err := admin.NewClient(socket).Attachments(ctx); err != nil { // accepted after the silent connection
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
