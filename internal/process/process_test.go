package process

import (
	"errors"
	"net"
	"os"
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
		t.Errorf("the service manager got %q, %v", got, err)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := notify("READY=1"); err != nil {
		t.Errorf("without a service manager: %v", err)
	}
}

func TestMakeDirsRefusesUnsafeDirectories(t *testing.T) {
	dir := t.TempDir()
	opt := Options{Run: filepath.Join(dir, "run"), State: filepath.Join(dir, "state"), Socket: filepath.Join(dir, "s")}
	if err := MakeDirs(opt); err != nil {
		t.Fatal(err)
	}
	if err := MakeDirs(opt); err != nil {
		t.Errorf("existing directories: %v", err)
	}
	open := opt
	open.State = filepath.Join(dir, "open")
	if err := errors.Join(os.Mkdir(open.State, 0o700), os.Chmod(open.State, 0o777)); err != nil {
		t.Fatal(err)
	}
	if MakeDirs(open) == nil {
		t.Error("a world-writable directory: no error")
	}
	elsewhere := opt
	elsewhere.Run = filepath.Join(dir, "link")
	if err := os.Symlink(opt.Run, elsewhere.Run); err != nil {
		t.Fatal(err)
	}
	if MakeDirs(elsewhere) == nil {
		t.Error("a symbolic link: no error")
	}
}

// TestLastLine checks that the reason of a crash is returned, and not the last line of
// a stack, and nothing that an earlier daemon has logged.
func TestLastLine(t *testing.T) {
	const earlier = "panic: of an earlier daemon\n\ngoroutine 1 [running]:\n"
	for text, want := range map[string]string{
		"": "it ended without a message",
		"level=INFO msg=begins\nfairlead: listen: no such file\n":                                 "listen: no such file",
		"level=INFO\nSIGQUIT: quit\nPC=0x1\n\ngoroutine 1:\ntime.Sleep(1)\n\ttime/sleep.go:215\n": "it crashed: SIGQUIT: quit",
		"panic: index out of range\n\ngoroutine 7 [running]:\nmain.main()\n\tmain.go:9\n":         "it crashed: panic: index out of range",
	} {
		log := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(log, []byte(earlier+text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lastLine(log, int64(len(earlier))); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
