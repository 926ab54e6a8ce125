package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lock"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// Config is the desired state of a proxy: all its sockets.
type Config struct {
	Listeners    []plan.Listener    `json:"listeners,omitempty"`
	Reservations []plan.Reservation `json:"reservations,omitempty"`
	// BindKey is the key with which the eBPF hooks at bind accept the proxy's
	// sockets on ports that are published via ebpf; 0 if there are no hooks.
	BindKey uint64 `json:"bindKey,omitempty"`
}

// BindError reports that the proxy could not bind an address. It unwraps to the
// syscall.Errno.
type BindError struct {
	Proto model.Proto
	Addr  netip.AddrPort
	Err   error
}

// Error names the address, the cause and what to do.
func (e *BindError) Error() string {
	hint := ""
	switch {
	case errors.Is(e.Err, syscall.EADDRINUSE):
		hint = "; choose another host port or stop the program that uses it"
	case errors.Is(e.Err, syscall.EADDRNOTAVAIL):
		hint = "; publish on an address that this host has"
	}
	return fmt.Sprintf("bind %s/%s: %v%s", e.Addr, e.Proto, e.Err, hint)
}

// Unwrap returns the errno.
func (e *BindError) Unwrap() error { return e.Err }

// errStopped is returned if the child has ended, has a successor, or the control
// socket has failed.
var errStopped = errors.New("the proxy process has stopped; start a new one and set its ports again")

// Proxy is the parent's handle for a proxy process. Its methods may be called
// concurrently.
type Proxy struct {
	process process
	pid     int
	control control
	// socket is the path of the control socket of a kept proxy; empty for a
	// proxy that ends with its parent.
	socket string
	done   chan struct{}

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan response // nil after the child has ended
	left    bool                     // it has a successor
}

// process is a proxy's process, for example a *child.Process.
type process interface {
	// Kill ends the process at once and waits for it.
	Kill() error
	Wait() error
}

// control is the parent's end of a control socket.
type control interface {
	io.ReadWriteCloser
	SetWriteDeadline(time.Time) error
}

// newHandle returns the handle for a process that serves the control socket.
func newHandle(of process, pid int, at control) *Proxy {
	p := &Proxy{process: of, pid: pid, control: at, done: make(chan struct{}), waiting: map[uint64]chan response{}}
	go p.receive()
	return p
}

// Start runs a proxy process. It has no ports until Set. It is killed when ctx
// ends.
func Start(ctx context.Context, at child.Place) (*Proxy, error) { return start(ctx, at, Role) }

func start(ctx context.Context, at child.Place, role string) (*Proxy, error) {
	cmd := child.Self(role)
	cmd.Stderr = os.Stderr
	// A terminal's Ctrl-C is for the parent, which then ends the proxy.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return launch(ctx, cmd, at)
}

// launch runs a command that serves as a proxy.
func launch(ctx context.Context, cmd *exec.Cmd, at child.Place) (*Proxy, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	defer theirs.Close()
	cmd.ExtraFiles = []*os.File{theirs}
	process, err := child.Start(ctx, cmd, at)
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	return newHandle(process, cmd.Process.Pid, ours), nil
}

// socketPair returns the two ends of the control socket.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make control socket: %w", err)
	}
	// Non-blocking, os.File reads it through the runtime's poller and Close
	// ends a pending read.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	return os.NewFile(uintptr(fds[0]), "proxy control"), os.NewFile(uintptr(fds[1]), "proxy control"), nil
}

// receive delivers answers to their callers until the child has ended.
func (p *Proxy) receive() {
	for answers := json.NewDecoder(p.control); ; {
		var answer response
		err := answers.Decode(&answer)
		p.mu.Lock()
		if err != nil {
			for _, caller := range p.waiting {
				close(caller)
			}
			p.waiting = nil
			p.mu.Unlock()
			close(p.done)
			return
		}
		p.left = p.left || answer.Left
		if caller, ok := p.waiting[answer.ID]; ok {
			caller <- answer
			delete(p.waiting, answer.ID)
		}
		p.mu.Unlock()
	}
}

// call sends a request and waits for its answer.
func (p *Proxy) call(ctx context.Context, ask request) (response, error) {
	lock.Outside("the proxy")
	caller := make(chan response, 1)
	if err := p.send(ctx, &ask, caller); err != nil {
		return response{}, err
	}
	select {
	case answer, ok := <-caller:
		if !ok {
			return response{}, errStopped
		}
		return answer, answer.err()
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.waiting, ask.ID)
		p.mu.Unlock()
		return response{}, ctx.Err()
	}
}

// send numbers a request and writes it. After a request that was written only
// in part the stream cannot be used any more, so send closes the control socket,
// which ends the child.
func (p *Proxy) send(ctx context.Context, ask *request, caller chan response) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == nil {
		return errStopped
	}
	deadline, _ := ctx.Deadline() // the zero time means no deadline
	if err := p.control.SetWriteDeadline(deadline); err != nil {
		return errors.Join(errStopped, err)
	}
	p.last++
	ask.ID = p.last
	p.waiting[ask.ID] = caller
	if err := json.NewEncoder(p.control).Encode(ask); err != nil {
		delete(p.waiting, ask.ID)
		return errors.Join(errStopped, err, p.control.Close())
	}
	return nil
}

// Set replaces the configuration with cfg. Unchanged listeners keep their
// sockets, connections and flows; those of removed listeners end. Returns a
// *BindError if an address cannot be bound; then nothing changes.
func (p *Proxy) Set(ctx context.Context, cfg Config) error {
	if _, err := p.call(ctx, request{Set: &cfg}); err != nil {
		return fmt.Errorf("set proxy ports: %w", err)
	}
	return nil
}

// Stats returns the proxy's counters.
func (p *Proxy) Stats(ctx context.Context) (model.ProxyStats, error) {
	answer, err := p.call(ctx, request{})
	if err != nil {
		return model.ProxyStats{}, fmt.Errorf("read proxy counters: %w", err)
	}
	return answer.Stats, nil
}

// Ended asks the proxy, and reports whether it has ended.
func (p *Proxy) Ended(ctx context.Context) bool {
	_, err := p.Stats(ctx)
	return err != nil && ctx.Err() == nil
}

// PID returns the proxy's process id.
func (p *Proxy) PID() int { return p.pid }

// Done returns a channel that is closed when the proxy has ended or the control
// socket has failed.
func (p *Proxy) Done() <-chan struct{} { return p.done }

// Close ends the proxy, its ports and its connections, and waits for it. A proxy
// that has a successor keeps its open connections.
func (p *Proxy) Close() error {
	if p.socket != "" {
		p.release()
	}
	p.mu.Lock()
	left := p.left
	p.mu.Unlock()
	var err error
	if !left {
		err = errors.Join(p.process.Kill(), p.forgetSocket())
	}
	if closed := p.control.Close(); !errors.Is(closed, os.ErrClosed) && !errors.Is(closed, net.ErrClosed) {
		err = errors.Join(err, closed)
	}
	if err != nil {
		return fmt.Errorf("close proxy: %w", err)
	}
	return nil
}
