package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"fairlead/internal/inotify"

	"golang.org/x/sys/unix"
)

// Watch returns a channel that gets a tick whenever some sandbox may have
// come or gone, and the first at once; ticks that nobody takes become one. It
// ends with ctx. Nothing is asked again and again:
//
//   - a namespace gets its name by a mount, so the table of mounts tells of it
//     (proc(5): poll of mountinfo), after the file that inotify shows;
//   - inotify tells of names that are symbolic links, as to a /proc/PID/ns/net;
//   - a container engine tells of its containers (GET /events), and inotify
//     tells when an engine comes to its socket.
//
// The end of a namespace that has no name, as a process's, is not among them;
// the kernel tells of it by the namespace's id (kernel.Host.WatchSandboxes).
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

// watcher waits for the kernel to tell of changes.
type watcher struct {
	dir     string
	ticks   chan struct{}
	engines []engine
	// mounts is the table of mounts. It is no os.File, which Go's poller would
	// poll as well: the kernel tells news only to the first who polls an open
	// file.
	mounts  int
	inotify int
	// stop is an eventfd that ends the waiting.
	stop int
	// names is the inotify watch of dir, -1 while there is no such directory.
	names int
}

// engine is the socket of a container engine.
type engine struct {
	socket string
	// is tells one socket at the path from the next.
	is unix.Stat_t
	// came gets a tick when an engine may have come to the socket.
	came chan struct{}
}

func newWatcher(f Finder) (w *watcher, err error) {
	w = &watcher{dir: f.NetnsDir, ticks: make(chan struct{}, 1), mounts: -1, inotify: -1, stop: -1, names: -1}
	for _, s := range f.Engines {
		w.engines = append(w.engines, engine{socket: s, came: make(chan struct{}, 1)})
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	const mounts = "/proc/thread-self/mountinfo"
	if w.mounts, err = unix.Open(mounts, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return nil, &os.PathError{Op: "open", Path: mounts, Err: err}
	}
	if w.inotify, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		return nil, fmt.Errorf("open inotify: %w", err)
	}
	if w.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("open eventfd: %w", err)
	}
	w.tick()
	return w, w.arm()
}

func (w *watcher) close() {
	for _, fd := range []int{w.mounts, w.inotify, w.stop} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// end ends run.
func (w *watcher) end() {
	_, _ = unix.Write(w.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // an eventfd takes eight bytes
}

// tick tells that something may have changed.
func (w *watcher) tick() { wake(w.ticks) }

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run waits for changes until it is ended. It costs a thread, and no time
// while nothing changes.
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
		if fds[1].Revents != 0 || fds[2].Revents != 0 && w.named() {
			w.tick()
		}
		_ = w.arm() // what cannot be watched now is tried again with the next change
	}
}

// named reads the news of inotify, and reports whether they are of names.
func (w *watcher) named() bool {
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

// arm watches the directories of names and of sockets, or the nearest above
// them that exists, and looks who is there. Watching one twice is harmless.
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
		var is unix.Stat_t
		_ = unix.Stat(e.socket, &is) // absent is the zero value
		if is.Dev != e.is.Dev || is.Ino != e.is.Ino || is.Ctim != e.is.Ctim {
			e.is = is
			wake(e.came)
		}
	}
	return nil
}

// watch watches a directory and the nearest above it that exists, and returns
// the watch of the directory, -1 when it does not exist.
func (w *watcher) watch(dir string) (int, error) {
	const events = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_ONLYDIR
	own, err := unix.InotifyAddWatch(w.inotify, dir, events)
	if err == nil {
		dir = filepath.Dir(dir)
	}
	for ; ; dir = filepath.Dir(dir) {
		_, above := unix.InotifyAddWatch(w.inotify, dir, events)
		if above == nil {
			return own, nil
		}
		if dir == "/" || !errors.Is(above, unix.ENOENT) {
			return -1, fmt.Errorf("watch %s: %w", dir, above)
		}
	}
}
