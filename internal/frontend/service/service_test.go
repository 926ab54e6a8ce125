package service

import (
	"net"
	"path/filepath"
	"testing"
)

func TestNotify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	if err := notify("READY=1"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, err := l.Read(buf)
	if got := string(buf[:n]); err != nil || got != "READY=1" {
		t.Errorf("the service manager is told %q, %v", got, err)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := notify("READY=1"); err != nil {
		t.Errorf("without a service manager: %v", err)
	}
}
