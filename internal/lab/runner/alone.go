package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockFile is locked while a laboratory runs. The kernel releases the lock when
// the process ends.
const lockFile = "/run/fairlead-lab.lock"

// ErrAnother means that another laboratory runs on this machine.
var ErrAnother = errors.New("another laboratory runs on this machine")

// Alone locks the machine for one laboratory, until release is closed. Returns
// ErrAnother if another one runs, because laboratories that run at the same time
// measure each other's load. If shared is true, it takes a shared lock, and returns
// the process ids of other laboratories in met.
func Alone(shared bool) (release io.Closer, met []int, err error) {
	if err := os.MkdirAll(filepath.Dir(lockFile), 0o755); err != nil {
		return nil, nil, fmt.Errorf("lock the machine for one laboratory: %w", err)
	}
	f, err := os.OpenFile(lockFile, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("lock the machine for one laboratory: %w", err)
	}
	other, err := holder(f)
	if err == nil && other != 0 {
		met = append(met, other)
	}
	kind := int16(unix.F_WRLCK)
	if shared {
		kind = unix.F_RDLCK
	}
	if err == nil {
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: kind})
	}
	switch {
	case err == nil, shared && refused(err):
		return f, met, nil
	case refused(err):
		err = fmt.Errorf("%w (PID %d): wait until it ends, or measure at the same time with --shared", ErrAnother,
			other)
	default:
		err = fmt.Errorf("lock the machine for one laboratory: %w", err)
	}
	return nil, nil, errors.Join(err, f.Close())
}

// refused reports whether another process has the lock.
func refused(err error) bool { return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) }

// holder returns the process id of any process that has the lock; 0 if there is
// none, or if it is in another PID namespace.
func holder(f *os.File) (int, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return 0, fmt.Errorf("find the owner of the lock: %w", err)
	}
	if lock.Type == unix.F_UNLCK {
		return 0, nil
	}
	return max(0, int(lock.Pid)), nil
}
