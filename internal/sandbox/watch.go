package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"fairlead/internal/alarm"
	"fairlead/internal/inotify"

	"golang.org/x/sys/unix"
)

// Watch returns a channel that receives a value (a tick) whenever a sandbox may
// have started or ended, and one at once. Ticks that are not received are merged.
// The watch ends with ctx. It does not poll:
//
//   - a namespace gets its name by a mount. inotify reports the file, and the
//     kernel then reports the change of the mount table (proc(5): poll of
//     mountinfo);
//   - inotify reports names that are symbolic links, e.g. to a /proc/PID/ns/net;
//   - a container engine reports changes of its containers (GET /events), and
//     inotify reports that an engine has created its socket.
//
// Watch does not report the end of a namespace without a name, e.g. of a process;
// the kernel reports that with the namespace's ID (kernel.Host.WatchSandboxes).
func (f Finder) Watch(ctx context.Context) (<-chan struct{}, error) {
	w, err := newWatcher(f)
	if err != nil {
		return nil, fmt.Errorf("watch sandboxes: %w", err)
	}
	for i := range w.engines {
		go w.listen(ctx, &w.engines[i])
	}
	stopped := context.AfterFunc(ctx, w.end)
	go func() {
		defer stopped()
		w.run()
	}()
	return w.ticks, nil
}

// watcher waits for changes that the kernel reports.
type watcher struct {
	dir     string
	ticks   alarm.Signal
	engines []engine
	// mounts is the open mount table. It is not an os.File, because Go's poller
	// would poll that too, and the kernel reports a change only to the first
	// poller of an open file.
	mounts  int
	inotify int
	// stop is an eventfd that ends the wait.
	stop int
	// names is the inotify watch of dir, or -1 if that directory does not exist.
	names int
}

// engine is the socket of a container engine.
type engine struct {
	socket string
	// stat identifies the socket that was last seen at the path.
	stat unix.Stat_t
	// appeared receives a value when an engine may have created the socket.
	appeared alarm.Signal
}

func newWatcher(f Finder) (*watcher, error) {
	w := &watcher{dir: f.NetnsDir, ticks: alarm.NewSignal(), mounts: -1, inotify: -1, stop: -1, names: -1}
	for _, s := range f.Engines {
		w.engines = append(w.engines, engine{socket: s, appeared: alarm.NewSignal()})
	}
	if err := w.open(); err != nil {
		w.close()
		return nil, err
	}
	w.tick()
	return w, nil
}

// open opens what the watcher reads, and watches the directories. On an error, some of it may be open.
func (w *watcher) open() (err error) {
	const mounts = "/proc/thread-self/mountinfo"
	if w.mounts, err = unix.Open(mounts, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return &os.PathError{Op: "open", Path: mounts, Err: err}
	}
	if w.inotify, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		return fmt.Errorf("open inotify: %w", err)
	}
	if w.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return fmt.Errorf("open eventfd: %w", err)
	}
	return w.arm()
}

func (w *watcher) close() {
	for _, fd := range []int{w.mounts, w.inotify, w.stop} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// end makes run return.
func (w *watcher) end() {
	_, _ = unix.Write(w.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // an eventfd takes eight bytes
}

// tick reports that something may have changed.
func (w *watcher) tick() { w.ticks.Send() }

// run waits for changes until end is called. It blocks one thread, and uses no
// CPU time while nothing changes.
func (w *watcher) run() {
	defer w.close()
	for {
		fds := []unix.PollFd{
			{Fd: int32(w.stop), Events: unix.POLLIN},
			{Fd: int32(w.mounts), Events: unix.POLLPRI},
			{Fd: int32(w.inotify), Events: unix.POLLIN},
		}
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil, fds[0].Revents != 0:
			return
		}
		if fds[1].Revents != 0 || fds[2].Revents != 0 && w.readNameEvents() {
			w.tick()
		}
		_ = w.arm() // after an error, the next change tries again
	}
}

// readNameEvents reads the pending events of inotify. It reports whether one of
// them is about a name, or whether events were lost.
func (w *watcher) readNameEvents() bool {
	var names bool
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(w.inotify, buf)
		if err != nil || n <= 0 {
			return names
		}
		for _, e := range inotify.Events(buf[:n]) {
			names = names || e.Watch == w.names || e.Mask&unix.IN_Q_OVERFLOW != 0
		}
	}
}

// arm watches the directories of names and of sockets, and checks which sockets
// exist. If a directory does not exist, it watches the nearest parent that does.
// It may watch a directory twice.
func (w *watcher) arm() error {
	names, err := w.watch(w.dir)
	if err != nil {
		return err
	}
	if names != w.names {
		w.names = names
		w.tick()
	}
	for i := range w.engines {
		e := &w.engines[i]
		if _, err := w.watch(filepath.Dir(e.socket)); err != nil {
			return err
		}
		var st unix.Stat_t
		_ = unix.Stat(e.socket, &st) // the zero value if it does not exist
		if st.Dev != e.stat.Dev || st.Ino != e.stat.Ino || st.Ctim != e.stat.Ctim {
			e.stat = st
			e.appeared.Send()
		}
	}
	return nil
}

// watch watches a directory and its nearest parent that exists. It returns the
// inotify watch of the directory, or -1 if the directory does not exist.
func (w *watcher) watch(dir string) (int, error) {
	const events = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_ONLYDIR
	wd, err := unix.InotifyAddWatch(w.inotify, dir, events)
	if err == nil {
		dir = filepath.Dir(dir)
	}
	for ; ; dir = filepath.Dir(dir) {
		_, above := unix.InotifyAddWatch(w.inotify, dir, events)
		if above == nil {
			return wd, nil
		}
		if dir == "/" || !errors.Is(above, unix.ENOENT) {
			return -1, fmt.Errorf("watch %s: %w", dir, above)
		}
	}
}
