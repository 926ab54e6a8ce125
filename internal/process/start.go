package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// readyWord is what a daemon in the background writes to its pipe when it is ready.
const readyWord = "ready\n"

// startLimit is how long the start of a daemon can take.
const startLimit = time.Minute

// Start starts a daemon in the background, unless one listens at opt.Socket already or is
// starting, and waits until it is ready. The daemon ends when it is idle. started reports
// whether Start has started it.
//
// The daemon inherits only the network namespace, the mount namespace and the
// limits of the caller. It has its own session, environment and umask, / as its
// directory, and no inherited files.
func Start(ctx context.Context, opt Options) (started bool, err error) {
	for _, path := range []*string{&opt.Run, &opt.State, &opt.Socket} {
		if *path, err = filepath.Abs(*path); err != nil {
			return false, fmt.Errorf("start the daemon: %w", err)
		}
	}
	if err := MakeDirs(opt); err != nil {
		return false, err
	}
	unlock, err := lockStart(opt)
	if err != nil {
		return false, err
	}
	defer unlock()
	if there, err := awaitStarting(ctx, opt.Socket); there || err != nil {
		return false, err // another process has started one meanwhile
	}
	log, err := os.OpenFile(LogFile(opt), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return false, fmt.Errorf("start the daemon: %w", err)
	}
	defer log.Close()
	earlier, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return false, fmt.Errorf("start the daemon: %w", err)
	}
	ready, writer, err := os.Pipe()
	if err != nil {
		return false, fmt.Errorf("start the daemon: %w", err)
	}
	defer ready.Close()
	cmd := exec.Command("/proc/self/exe", "daemon", "--idle-exit", "--ready-fd", "3",
		"--run-dir", opt.Run, "--state-dir", opt.State, "--socket", opt.Socket)
	cmd.Args[0] = "fairlead"
	cmd.Env = environment()
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = "/", log, log, []*os.File{writer}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	writer.Close()
	if err != nil {
		return false, fmt.Errorf("start the daemon: %w", err)
	}
	err = awaitReady(cmd, ready, LogFile(opt), earlier)
	if err != nil && answers(ctx, opt.Socket) {
		return false, nil // another process was faster
	}
	return true, err
}

// awaitStarting waits while a daemon for the socket starts, and reports whether one listens there.
func awaitStarting(ctx context.Context, socket string) (there bool, err error) {
	for end := time.Now().Add(startLimit); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(lockRetry) {
		if answers(ctx, socket) {
			return true, nil
		}
		if soon, err := starting(socket); err != nil || !soon {
			return false, err
		}
	}
	return false, ctx.Err()
}

// environment returns the environment of a daemon in the background: a search path
// for the commands of health checks, and DOCKER_HOST if that is a unix socket.
func environment() []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if engine := os.Getenv("DOCKER_HOST"); strings.HasPrefix(engine, "unix://") {
		env = append(env, "DOCKER_HOST="+engine)
	}
	return env
}

// CloseInherited closes the inherited files of a daemon in the background, except the
// standard files and the pipe on which it reports that it is ready. It does not close
// files that the process opened itself: these are close-on-exec.
func CloseInherited(ready int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("close inherited files: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 || fd == ready {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd) // it is closed even after an error
		}
	}
	return nil
}

// LogFile returns the path of the log of a daemon in the background.
func LogFile(opt Options) string { return filepath.Join(opt.Run, "daemon.log") }

// awaitReady waits until the daemon reports on the pipe that it is ready, or ends. The first bytes of the log, earlier
// in number, are those of earlier daemons.
func awaitReady(cmd *exec.Cmd, ready *os.File, log string, earlier int64) error {
	err := ready.SetReadDeadline(time.Now().Add(startLimit))
	var word []byte
	if err == nil {
		word, err = io.ReadAll(ready)
	}
	if string(word) == readyWord {
		return cmd.Process.Release()
	}
	if err != nil {
		_ = cmd.Process.Kill()
	}
	_ = cmd.Wait()
	return fmt.Errorf("start the daemon: %s (the whole log: %s)", lastLine(log, earlier), log)
}

// lastLine returns the last line of a daemon's log, which begins after the earlier bytes. After a crash it returns the
// line with the reason, because the log ends with the stacks of the goroutines.
func lastLine(log string, earlier int64) string {
	text, err := os.ReadFile(log)
	text = text[min(earlier, int64(len(text))):]
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || lines[len(lines)-1] == "" {
		return "it ended without a message"
	}
	for _, line := range lines {
		for _, begin := range []string{"panic: ", "fatal error: ", "SIGQUIT: ", "SIGABRT: ", "SIGSEGV: "} {
			if strings.HasPrefix(line, begin) {
				return "it crashed: " + line
			}
		}
	}
	return strings.TrimPrefix(lines[len(lines)-1], "fairlead: ")
}

// ReportReady writes to the pipe of Start that the daemon is ready.
func ReportReady(fd int) error {
	f := os.NewFile(uintptr(fd), "ready")
	if f == nil {
		return fmt.Errorf("report that the daemon is ready: file descriptor %d is not open", fd)
	}
	_, err := f.WriteString(readyWord)
	return errors.Join(err, f.Close())
}

// lockStart waits until no other process is starting a daemon, and locks the start.
// unlock removes the file.
func lockStart(opt Options) (unlock func() error, err error) {
	path := filepath.Join(opt.Run, "start.lock")
	f, _, err := lockAt(path, unix.LOCK_EX)
	if err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	return func() error { return errors.Join(os.Remove(path), f.Close()) }, nil
}

// answers reports whether a daemon listens at the socket.
func answers(ctx context.Context, socket string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// Beside returns the directories of a daemon that listens at socket: the default ones
// if that is the default socket, else directories beside the socket.
func Beside(socket, defaultSocket string) Options {
	if socket == defaultSocket {
		return Options{Run: RunDir, State: StateDir, Socket: socket}
	}
	dir := filepath.Dir(socket)
	return Options{Run: filepath.Join(dir, "run"), State: filepath.Join(dir, "state"), Socket: socket}
}
