package service

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

// readyWord is what a daemon in the background says on its pipe.
const readyWord = "ready\n"

// startLimit bounds the start of a daemon.
const startLimit = time.Minute

// Start starts a daemon in the background that ends by itself, unless one
// runs there already, and waits until it answers. It reports whether it has
// started one.
//
// The daemon inherits nothing from who starts it but the network namespace,
// the mount namespace and limits: it has a session, an environment and a umask
// of its own, / as its directory, and no other files open.
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
	if answers(ctx, opt.Socket) {
		return false, nil // somebody else has started one meanwhile
	}
	log, err := os.OpenFile(LogFile(opt), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return false, fmt.Errorf("start the daemon: %w", err)
	}
	defer log.Close()
	said, theirs, err := os.Pipe()
	if err != nil {
		return false, fmt.Errorf("start the daemon: %w", err)
	}
	defer said.Close()
	cmd := exec.Command("/proc/self/exe", "daemon", "--idle-exit", "--ready-fd", "3",
		"--run-dir", opt.Run, "--state-dir", opt.State, "--socket", opt.Socket)
	cmd.Args[0] = "fairlead"
	cmd.Env = environment()
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = "/", log, log, []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return false, fmt.Errorf("start the daemon: %w", err)
	}
	return true, awaitReady(cmd, said, LogFile(opt))
}

// environment is that of a daemon in the background: a search path for commands
// of health checks, and the engine to ask if it is one of this host.
func environment() []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if engine := os.Getenv("DOCKER_HOST"); strings.HasPrefix(engine, "unix://") {
		env = append(env, "DOCKER_HOST="+engine)
	}
	return env
}

// CloseInherited closes the files that a daemon in the background has inherited
// beside its standard ones and the pipe for its readiness. What the process has
// opened itself is close-on-exec.
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
			_ = unix.Close(fd) // whatever it says, it is closed
		}
	}
	return nil
}

// LogFile is where a daemon in the background writes.
func LogFile(opt Options) string { return filepath.Join(opt.Run, "daemon.log") }

// awaitReady waits until the daemon says that it is ready, or ends.
func awaitReady(cmd *exec.Cmd, said *os.File, log string) error {
	err := said.SetReadDeadline(time.Now().Add(startLimit))
	var word []byte
	if err == nil {
		word, err = io.ReadAll(said)
	}
	if string(word) == readyWord {
		return cmd.Process.Release()
	}
	if err != nil {
		_ = cmd.Process.Kill()
	}
	_ = cmd.Wait()
	return fmt.Errorf("start the daemon: %s (the whole log: %s)", lastLine(log), log)
}

// lastLine is what a daemon said last in its log. A crash ends with the stacks of
// its goroutines: then it is the line that says why.
func lastLine(log string) string {
	text, err := os.ReadFile(log)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || lines[len(lines)-1] == "" {
		return "it ended without a word"
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

// SayReady says on the pipe of Start that the daemon answers.
func SayReady(fd int) error {
	f := os.NewFile(uintptr(fd), "ready")
	if f == nil {
		return fmt.Errorf("say that the daemon is ready: no file %d", fd)
	}
	_, err := f.WriteString(readyWord)
	return errors.Join(err, f.Close())
}

// lockStart lets one process at a time start a daemon.
func lockStart(opt Options) (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(opt.Run, "start.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("start the daemon: %w", err), f.Close())
	}
	return f.Close, nil
}

// answers reports whether a daemon listens.
func answers(ctx context.Context, socket string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// Beside returns the directories of a daemon that listens on socket: the
// host's own for its own socket, else directories beside it.
func Beside(socket, own string) Options {
	if socket == own {
		return Options{Run: RunDir, State: StateDir, Socket: socket}
	}
	dir := filepath.Dir(socket)
	return Options{Run: filepath.Join(dir, "run"), State: filepath.Join(dir, "state"), Socket: socket}
}
