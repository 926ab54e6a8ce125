package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/child"
)

// answerLimit is how long a child may take to answer one request: it may open a
// hundred thousand flows on a busy machine, or wait until a dead target times out.
const answerLimit = grace - 3*time.Second

// countLimit is how long a window with a count may last.
const countLimit = time.Minute

// Child is a started child. It need not be a child of this process.
type Child interface {
	PID() int
	// Done returns a channel that is closed when the child has ended. Wait waits
	// for the end and returns the child's error.
	Done() <-chan struct{}
	Wait() error
	// Kill kills the child and waits until it has ended.
	Kill() error
}

// process is one child and its control channel.
type process struct {
	side    Side
	child   Child
	control net.Conn
	in      *json.Decoder
	out     *json.Encoder
	once    sync.Once
}

// start starts a load child at a place.
func start(ctx context.Context, side Side, at child.Place) (*process, error) {
	control, theirs, err := controlPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := child.Self(Role)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	// Signals that preempt goroutines would interrupt system calls. They are not
	// needed: every loop of a child enters the kernel often.
	cmd.Env = append(cmd.Env, "GODEBUG=asyncpreemptoff=1")
	p, err := child.Start(ctx, cmd, at)
	if err != nil {
		control.Close()
		return nil, fmt.Errorf("start load %s: %w", side, err)
	}
	return adopt(side, started{p}, control), nil
}

// started is a child of this process.
type started struct{ *child.Process }

func (s started) PID() int { return s.Cmd.Process.Pid }

func (s started) Wait() error { return s.Ended() }

// adopt returns a process for a child that has been started.
func adopt(side Side, c Child, control net.Conn) *process {
	return &process{side: side, child: c, control: control, in: json.NewDecoder(control), out: json.NewEncoder(control)}
}

// controlPair makes the control channel: the parent's end and the child's.
func controlPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make control channel: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("make control channel: %w", err)
	}
	return conn, theirs, nil
}

// ask sends one request and waits for its reply. If ctx ends first, or the channel
// fails, it kills the child, because a later reply could not be assigned to its
// request. It returns an *Error if the child reports one.
func (p *process) ask(ctx context.Context, q request) (reply, error) {
	var r reply
	if err := ctx.Err(); err != nil {
		return r, fmt.Errorf("ask load %s to %s: %w", p.side, q.Do, err)
	}
	limit := answerLimit
	if q.Do == doAwait {
		limit = countLimit
	}
	if err := p.control.SetDeadline(time.Now().Add(limit)); err != nil {
		return r, fmt.Errorf("ask load %s to %s: %w", p.side, q.Do, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = p.control.SetDeadline(time.Now()) })
	defer stop()
	err := p.out.Encode(q)
	if err == nil {
		err = p.in.Decode(&r)
	}
	if err != nil {
		return r, p.lost(ctx, q, err)
	}
	if r.Fault != nil {
		return r, r.Fault
	}
	return r, nil
}

// lost kills the child of a broken control channel, and returns an error with the
// cause. A later Close then returns no error.
func (p *process) lost(ctx context.Context, q request, err error) error {
	_ = p.child.Kill()
	p.once.Do(func() { p.control.Close() })
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("ask load %s to %s: %w", p.side, q.Do, errors.Join(err, p.child.Wait()))
}

// relay passes the messages of a process elsewhere on to the child and back, until
// either ends. Then it closes both channels, and the child ends itself.
func (p *process) relay(conn net.Conn) error {
	ended := make(chan error, 2)
	pass := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		ended <- err
	}
	go pass(p.control, conn)
	go pass(conn, p.control)
	err := <-ended
	p.control.Close()
	conn.Close()
	<-ended
	return err
}

// endLimit is how long a child may take to end by itself. The kernel removes its
// namespaces then, which takes seconds on a busy machine.
const endLimit = time.Minute

// close closes the control channel, waits until the child ends, and kills it after
// endLimit.
func (p *process) close() error {
	var err error
	p.once.Do(func() {
		p.control.Close()
		select {
		case <-p.child.Done():
		case <-time.After(endLimit):
			_ = p.child.Kill()
		}
		if e := p.child.Wait(); e != nil {
			err = fmt.Errorf("end load %s: %w", p.side, e)
		}
	})
	return err
}

// running is a child that has been started.
type running struct{ process *process }

// Relay passes the messages of an adopted child elsewhere on to this one, until conn
// or the child ends. Only Close may be called after that.
func (r running) Relay(conn net.Conn) error { return r.process.relay(conn) }

// PID is the child's process id.
func (r running) PID() int { return r.process.child.PID() }

// Close ends the child and waits for it. It returns an error if the child failed,
// but not again after Run has returned that error.
func (r running) Close() error { return r.process.close() }

// Server is a child process that serves the load generator's clients.
type Server struct{ running }

// StartServer starts a server child at a place. The child runs until Close, or
// until ctx or this process ends.
func StartServer(ctx context.Context, at child.Place) (*Server, error) {
	p, err := start(ctx, ServerSide, at)
	if err != nil {
		return nil, err
	}
	return &Server{running{p}}, nil
}

// AdoptServer returns a Server for a child that another process has started in
// the role "load", with Control in its environment, and that has connected.
func AdoptServer(c Child, control net.Conn) *Server {
	return &Server{running{adopt(ServerSide, c, control)}}
}

// Listen opens addr for TCP and UDP and closes the address of an earlier call. The
// address may be unspecified and the port 0; Listen returns the bound address. It
// returns an *Error if the address cannot be bound; the earlier one then stays
// open.
func (s *Server) Listen(ctx context.Context, addr netip.AddrPort) (netip.AddrPort, error) {
	r, err := s.process.ask(ctx, request{Do: doListen, Addr: addr})
	return r.Addr, err
}

// Client is a running client child.
type Client struct{ running }

// StartClient starts a client child at a place, as StartServer does.
func StartClient(ctx context.Context, at child.Place) (*Client, error) {
	p, err := start(ctx, ClientSide, at)
	if err != nil {
		return nil, err
	}
	return &Client{running{p}}, nil
}

// AdoptClient returns a Client for such a child.
func AdoptClient(c Child, control net.Conn) *Client {
	return &Client{running{adopt(ClientSide, c, control)}}
}
