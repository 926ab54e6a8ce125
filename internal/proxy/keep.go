package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/child"
	"fairlead/internal/lock"
	"fairlead/internal/unixsock"
)

// Keeping configures a proxy that outlives its parent.
type Keeping struct {
	// Socket is the path of the unix socket where the next parent finds it.
	Socket string
	// Netns is an open network namespace; nil means the caller's.
	Netns *os.File
	// Errors is the path of a file for the proxy's standard error.
	Errors string
	Log    *slog.Logger
}

// findLimit limits the time until a running proxy returns its configuration.
const findLimit = 5 * time.Second

// Keep returns the proxy that outlives its parents: the running one, or a new
// one. The proxy ends when it has had no ports for a while (10 s).
func Keep(ctx context.Context, at Keeping) (*Proxy, error) {
	p, err := Find(ctx, at)
	if p != nil || err != nil {
		return p, err
	}
	return at.start(ctx, false)
}

// Find returns the proxy that an earlier parent has left, or nil. If it runs
// another program file than the caller, a new proxy takes over from it first.
// If that fails, Find logs a warning and returns the old proxy.
func Find(ctx context.Context, at Keeping) (*Proxy, error) {
	p, err := at.connect(ctx)
	if p == nil || err != nil {
		return nil, err
	}
	same, err := p.runsOurProgram()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, p.Part() // it has just ended
	}
	if err != nil || same {
		return p, err
	}
	next, err := at.start(ctx, true)
	if err != nil {
		at.Log.Warn("start a proxy of this version: the earlier one continues", "pid", p.pid, "error", err)
		return p, nil
	}
	at.Log.Info("a proxy of this version has taken over", "pid", next.pid, "before", p.pid)
	return next, p.Part()
}

// start runs a new proxy. If takeOver is set, it takes over from the running one.
func (k Keeping) start(ctx context.Context, takeOver bool) (*Proxy, error) {
	if len(k.Socket)+len(newSuffix) >= len(unix.RawSockaddrUnix{}.Path) {
		return nil, fmt.Errorf("start proxy: %s is too long for a unix socket: use a directory with a shorter path",
			k.Socket)
	}
	said, err := os.OpenFile(k.Errors, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	defer said.Close()
	// This process may have inherited a file, a lock or the end of a pipe, which
	// must not stay open as long as the proxy runs. Needs Linux 5.11.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	cmd := child.Self(Role)
	cmd.Env = []string{child.Role + "=" + Role}
	cmd.Dir, cmd.Stderr = "/", said
	p, err := launch(context.Background(), cmd, child.Place{Netns: k.Netns, Outlives: true})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*handOverLimit)
	defer cancel()
	if _, err := p.call(ctx, request{Keep: &keep{k.Socket, takeOver}}); err != nil {
		// Without a parent it ends, unless it has taken over in spite of the error.
		return nil, errors.Join(fmt.Errorf("start proxy: %w", err), p.Part())
	}
	p.socket = k.Socket
	return p, nil
}

// connect returns the proxy that listens at the socket, if one does.
func (k Keeping) connect(ctx context.Context) (*Proxy, error) {
	lock.Outside("the proxy")
	ctx, cancel := context.WithTimeout(ctx, findLimit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", k.Socket)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the proxy: %w", err)
	}
	p, err := k.identify(conn.(*net.UnixConn))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, conn.Close() // it has just ended
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find the proxy at %s: %w", k.Socket, err), conn.Close())
	}
	// It answers, so its pid has not been reused.
	if _, err := p.CurrentConfig(ctx); errors.Is(err, errStopped) {
		return nil, p.Part()
	} else if err != nil {
		return nil, errors.Join(fmt.Errorf("find the proxy at %s (pid %d): %w: end that process", k.Socket, p.pid, err),
			p.Part())
	}
	return p, nil
}

// identify makes sure that the process that listens runs as root or this user, in
// the right network namespace.
func (k Keeping) identify(conn *net.UnixConn) (*Proxy, error) {
	who, err := unixsock.PeerOf(conn)
	if err != nil {
		return nil, err
	}
	pid := int(who.Pid)
	if !who.Trusted() {
		return nil, fmt.Errorf("process %d of user %d listens there, which is another user: end it", pid, who.Uid)
	}
	if err := k.inNetns(pid); err != nil {
		return nil, err
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	p := newHandle(adopted{os.NewFile(uintptr(pidfd), "proxy")}, pid, conn)
	p.socket = k.Socket
	return p, nil
}

// inNetns makes sure that the process is in the network namespace k.Netns.
func (k Keeping) inNetns(pid int) error {
	path := fmt.Sprintf("/proc/%d/ns/net", pid)
	theirs, err := os.Stat(path)
	if err != nil {
		return err
	}
	ours, err := os.Stat("/proc/thread-self/ns/net")
	if k.Netns != nil {
		ours, err = k.Netns.Stat()
	}
	if err != nil {
		return err
	}
	if !os.SameFile(theirs, ours) {
		return fmt.Errorf("process %d serves another network namespace: end it, or use another directory", pid)
	}
	return nil
}

// runsOurProgram reports whether the proxy runs the same file as this process.
// While a file is executed, deleted or not, its inode is not reused.
func (p *Proxy) runsOurProgram() (bool, error) {
	theirs, err := os.Stat(fmt.Sprintf("/proc/%d/exe", p.pid))
	if err != nil {
		return false, fmt.Errorf("read the program of the proxy: %w", err)
	}
	ours, err := os.Stat("/proc/self/exe")
	if err != nil {
		return false, fmt.Errorf("read the program of the proxy: %w", err)
	}
	return os.SameFile(theirs, ours), nil
}

// CurrentConfig returns the proxy's configuration.
func (p *Proxy) CurrentConfig(ctx context.Context) (Config, error) {
	answer, err := p.call(ctx, request{Ask: askConfig})
	if err == nil && answer.Config == nil {
		err = errors.New("the answer has none")
	}
	if err != nil {
		return Config{}, fmt.Errorf("read the configuration of the proxy: %w", err)
	}
	return *answer.Config, nil
}

// Part closes the control socket of a kept proxy, which continues to run.
func (p *Proxy) Part() error {
	if a, ok := p.process.(adopted); ok {
		_ = a.pidfd.Close() // it is needed only for Kill
	}
	if err := p.control.Close(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// release sets an empty configuration before a kept proxy is ended. That ends
// the connections of its predecessors, too.
func (p *Proxy) release() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*curtailLimit)
	defer cancel()
	_ = p.Set(ctx, Config{}) // it may have ended already
}

// forgetSocket removes the socket of a proxy that has ended.
func (p *Proxy) forgetSocket() error {
	if p.socket == "" {
		return nil
	}
	if err := os.Remove(p.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// adopted is a process that is not a child of this one.
type adopted struct{ pidfd *os.File }

// Kill implements process.
func (a adopted) Kill() error {
	err := unix.PidfdSendSignal(int(a.pidfd.Fd()), unix.SIGKILL, nil, 0)
	if errors.Is(err, syscall.ESRCH) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("end the proxy: %w", err)
	}
	return errors.Join(a.Wait(), a.pidfd.Close())
}

// Wait implements process.
func (a adopted) Wait() error {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(a.pidfd.Fd()), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
