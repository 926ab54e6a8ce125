package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/test/process"

	"golang.org/x/sys/unix"
)

// uninstallRole removes Fairlead from a host whose files are its own.
const uninstallRole = "service-uninstall"

// manyFiles is so many that their removal takes much longer than the start of a waiting daemon.
const manyFiles = 20_000

// atReady is a handler of a log that calls do when a daemon is ready. It drops what is logged.
type atReady struct {
	slog.Handler
	do func()
}

func (h atReady) Enabled(context.Context, slog.Level) bool { return true }

func (h atReady) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "ready" {
		h.do()
	}
	return nil
}

// runUninstall waits for the lock of the network namespace while Fairlead is removed, as a daemon does that a command
// has started. It returns an error if it gets the lock while there are files, which would be removed afterwards.
func runUninstall(struct{}) error {
	err := errors.Join(unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""))
	for _, dir := range []string{"/run", "/var/lib", "/sys/fs/bpf"} {
		err = errors.Join(err, unix.Mount("none", dir, "tmpfs", 0, "mode=0755"))
	}
	if err != nil {
		return err
	}
	waited := make(chan error, 1)
	opt := Options{Run: RunDir, State: StateDir, Log: slog.New(atReady{slog.DiscardHandler, func() {
		lock, err := openLock()
		go func() { waited <- errors.Join(err, filesAtUnlock(lock)) }()
	}})}
	err = MakeDirs(opt)
	for i := range manyFiles {
		err = errors.Join(err, os.WriteFile(filepath.Join(StateDir, fmt.Sprint("file", i)), nil, 0o600))
	}
	if err != nil {
		return err
	}
	process.Ready()
	if err := Uninstall(context.Background(), opt, false); err != nil {
		return err
	}
	return <-waited
}

func openLock() (*os.File, error) {
	path, err := lockPath()
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

// filesAtUnlock waits until the lock is free, and returns an error if the state is still there.
func filesAtUnlock(lock *os.File) error {
	defer lock.Close()
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if _, left := os.Stat(StateDir); err == nil && left == nil {
		return errors.New("a waiting daemon starts before the files of the last one are removed")
	}
	return err
}

// TestUninstallKeepsTheLock checks that no other daemon starts before all files are removed: it would lose its files.
func TestUninstallKeepsTheLock(t *testing.T) {
	t.Parallel()
	p := process.Start(t, uninstallRole, struct{}{}, child.Place{Netns: kerneltest.Netns(t).File(), Contained: true})
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}
