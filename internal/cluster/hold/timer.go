package hold

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// timer is an alarm by CLOCK_BOOTTIME, which also counts the time while the host sleeps. The
// timers of the runtime do not.
type timer struct{ file *os.File }

func newTimer() (*timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a timer: %w", err)
	}
	return &timer{os.NewFile(uintptr(fd), "timerfd")}, nil
}

// set makes the timer expire at a time, instead of any earlier setting. A time in the past
// expires at once; 0 or less never does.
func (t *timer) set(at time.Duration) error {
	raw, err := t.file.SyscallConn()
	if err != nil {
		return err
	}
	spec := &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(at, 0)))}
	failed := raw.Control(func(fd uintptr) {
		err = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, spec, nil)
	})
	return errors.Join(failed, err)
}

// wait waits until the timer expires. It returns false when the timer is closed.
func (t *timer) wait() bool {
	_, err := t.file.Read(make([]byte, 8))
	return err == nil
}

func (t *timer) close() { t.file.Close() }
