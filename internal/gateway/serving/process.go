package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lock"
	"fairlead/internal/unixsock"

	"golang.org/x/sys/unix"
)

// process is a serving process as a controlling process sees it.
type process struct {
	pid int
	// pidfd identifies it, for kill. done is closed when it has ended.
	pidfd *os.File
	done  <-chan struct{}
	// path is of its socket for the next controlling process, empty if it has none.
	path string
	// limit is answerLimit, or that of a test.
	limit time.Duration

	mu   sync.Mutex
	link *link
	last uint64
}

// Options say how serving processes run.
type Options struct {
	// Directory is where the next controlling process finds the serving process. Only this
	// process's user may enter it. If empty, the serving process ends with this one.
	Directory string
	// Netns is an open network namespace; nil means the caller's.
	Netns *os.File
	// Stdout gets the access log that has no file, Stderr the log. If nil, they are dropped.
	Stdout, Stderr *os.File
	// Life ends when this process leaves the serving process to the next controlling process: then nothing waits
	// for an answer any more. If nil, it does not end.
	Life context.Context
	Log  *slog.Logger
}

// launch starts a process that has no settings yet.
func launch(opt Options) (*process, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make control socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err = errors.Join(err, ours.Close()); err != nil {
		return nil, fmt.Errorf("make control socket: %w", err)
	}
	// What this process may have inherited must not stay open in the other. Needs Linux
	// 5.11.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	started, pidfd, err := fork(opt, theirs)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go func() { <-started.Done(); pidfd.Close() }()
	return &process{pid: started.Cmd.Process.Pid, pidfd: pidfd, limit: answerLimit, done: started.Done(),
		link: &link{conn: conn.(*net.UnixConn)}}, nil
}

// fork starts the program as a user of its own. Where this process may not choose the
// user, as in a container without CAP_SETUID, it keeps this one.
func fork(opt Options, control *os.File) (*child.Process, *os.File, error) {
	pidfd := -1
	start := func(as *syscall.Credential) (*child.Process, error) {
		cmd := child.Self(Role)
		cmd.Env = append(environment(), child.Role+"="+Role)
		cmd.Dir, cmd.Stdout, cmd.Stderr = "/", opt.Stdout, opt.Stderr
		cmd.ExtraFiles = []*os.File{control}
		// A terminal's Ctrl-C is for the controlling process.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: opt.Directory == "", Credential: as, PidFD: &pidfd}
		return child.Start(context.Background(), cmd, child.Place{Netns: opt.Netns, Outlives: opt.Directory != ""})
	}
	as := credential()
	p, err := start(as)
	if as != nil && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL)) {
		opt.Log.Warn("the serving process keeps this process's user, and can read its files: "+
			"give this process CAP_SETUID and CAP_SETGID", "error", err)
		p, err = start(nil)
	}
	if errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("%w: let all users execute the program file (chmod a+rx)", err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("start the serving process: %w", err)
	}
	return p, os.NewFile(uintptr(pidfd), "serving process"), nil
}

// call sends a request with descriptors, and returns the answer and its descriptors. What takes long does not
// fail as long as the process reports progress. The end of ctx interrupts it.
func (p *process) call(ctx context.Context, r request, fds []int) (answer response, got []int, err error) {
	lock.Outside("the serving process")
	p.mu.Lock()
	defer p.mu.Unlock()
	defer context.AfterFunc(ctx, func() { _ = p.link.conn.SetDeadline(time.Unix(1, 0)) })()
	p.last++
	r.ID, r.Beats = p.last, true
	err = p.extend(ctx)
	if err == nil {
		err = p.link.send(r, fds)
	}
	for answer.Busy = true; err == nil && answer.Busy; {
		answer = response{}
		if err = p.extend(ctx); err == nil {
			got, err = p.link.receive(&answer)
		}
	}
	if err == nil && answer.ID != r.ID {
		err = fmt.Errorf("it answers request %d instead of %d", answer.ID, r.ID)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = cmp.Or(ctx.Err(), err)
	}
	if err != nil {
		unixsock.CloseAll(got)
		// The next answer could be of this request.
		return answer, nil, errors.Join(fmt.Errorf("ask the serving process %d: %w", p.pid, err), p.link.conn.Close())
	}
	if err = answer.err(); err != nil {
		unixsock.CloseAll(got)
		return answer, nil, fmt.Errorf("the serving process %d: %w", p.pid, err)
	}
	return answer, got, nil
}

// extend gives the process the time limit from now on, but no longer than the context has.
func (p *process) extend(ctx context.Context) error {
	limit := time.Now().Add(p.limit)
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		limit = d
	}
	return errors.Join(p.link.conn.SetDeadline(limit), ctx.Err())
}

// ask sends a request without parameters, and expects no descriptors.
func (p *process) ask(ctx context.Context, what ask) (response, error) {
	answer, fds, err := p.call(ctx, request{Ask: what}, nil)
	unixsock.CloseAll(fds)
	return answer, err
}

// prefix begins the names of the sockets in Options.Directory.
const prefix = "gateway-"

// listen makes a socket for the next controlling process in a directory.
func listen(directory string) (descriptor int, path string, err error) {
	path = filepath.Join(directory, prefix+strconv.FormatInt(time.Now().UnixNano(), 36)+".sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return -1, "", err
	}
	l.SetUnlinkOnClose(false)
	descriptor, err = duplicate(l)
	if err = errors.Join(err, l.Close(), os.Chmod(path, 0o600)); err != nil {
		return -1, "", errors.Join(err, os.Remove(path))
	}
	return descriptor, path, nil
}

// find returns the processes that listen in the directory, the newest first, and those that
// complete their last connections. It removes the sockets of processes that have ended.
func find(ctx context.Context, opt Options) (found, leaving []*process, err error) {
	if opt.Directory == "" {
		return nil, nil, nil
	}
	paths, err := filepath.Glob(filepath.Join(opt.Directory, prefix+"*.sock"))
	if err != nil {
		return nil, nil, err
	}
	began := map[*process]int64{}
	for _, path := range paths {
		p, is, failed := meet(ctx, path)
		switch {
		case failed != nil:
			err = errors.Join(err, fmt.Errorf("find the serving process at %s: %w", path, failed))
		case p == nil:
			_ = os.Remove(path)
		case is.Left:
			leaving = append(leaving, p)
		default:
			began[p] = is.Began
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b *process) int { return cmp.Compare(began[b], began[a]) })
	return found, leaving, err
}

// meet connects to the process that listens at the path, and asks what it is. It returns nil
// if none does any more.
func meet(ctx context.Context, path string) (p *process, is self, err error) {
	for range 3 { // it may end meanwhile
		p, is, err = connect(ctx, path)
		if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
			return nil, is, nil
		}
		if err == nil {
			return p, is, nil
		}
	}
	return nil, is, err
}

// connect returns the process that listens at the path, and what it says of itself.
func connect(ctx context.Context, path string) (*process, self, error) {
	made, err := (&net.Dialer{Timeout: answerLimit}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, self{}, err
	}
	p := &process{path: path, limit: answerLimit, link: &link{conn: made.(*net.UnixConn)}}
	is, err := p.identify(ctx)
	if err != nil {
		return nil, self{}, errors.Join(err, made.Close())
	}
	return p, is, nil
}

// identify finds out which process serves the socket. The kernel says who began to listen: this
// user's controlling process; and who writes: the serving process.
func (p *process) identify(ctx context.Context) (is self, err error) {
	who, err := unixsock.PeerOf(p.link.conn)
	if err != nil {
		return is, err
	}
	if !who.Trusted() {
		return is, fmt.Errorf("user %d listens there, which is another user: remove the file", who.Uid)
	}
	raw, err := p.link.conn.SyscallConn()
	if err != nil {
		return is, err
	}
	failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	if err = errors.Join(failed, err); err != nil {
		return is, err
	}
	answer, err := p.ask(ctx, askSelf)
	if err != nil {
		return is, err
	}
	sender := p.link.with.Sender
	if sender == nil || sender.Uid != 0 && sender.Uid != User && int(sender.Uid) != os.Geteuid() {
		return is, errors.New("another user's process answers there: remove the file")
	}
	if answer.Self == nil {
		return is, errors.New("it does not say what it is: end that process")
	}
	return *answer.Self, p.follow(int(sender.Pid))
}

// follow sets the process that p stands for.
func (p *process) follow(pid int) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	done := make(chan struct{})
	p.pid, p.pidfd, p.done = pid, os.NewFile(uintptr(pidfd), "serving process"), done
	go func() {
		defer p.pidfd.Close()
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1)
			if !errors.Is(err, unix.EINTR) {
				close(done)
				return
			}
		}
	}()
	return nil
}

// runsOurProgram reports whether the process runs the same file as this one. While a file is
// executed, deleted or not, its inode is not used again.
func (p *process) runsOurProgram() bool {
	theirs, err := os.Stat(fmt.Sprintf("/proc/%d/exe", p.pid))
	if err != nil {
		return false
	}
	ours, err := os.Stat("/proc/self/exe")
	return err == nil && os.SameFile(theirs, ours)
}
