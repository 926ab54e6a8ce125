package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"fairlead/internal/child"
)

// Role is the name of the child's role, whose function is Main.
const Role = "load"

// Control is the environment variable with the path of the unix socket on which the
// parent accepts the control channel, for a child that cannot inherit a descriptor.
const Control = "FAIRLEAD_LOAD_CONTROL"

// grace is how much longer than its warm-up and window a run may take before a
// child ends because its parent sends no request.
const grace = 2 * time.Minute

// Main runs the role "load": it executes the requests of the control channel, which
// is descriptor 3 or the socket that Control names, until the channel closes. It
// returns the exit status.
func Main() int {
	control, err := inherited()
	if err == nil {
		err = new(generator).obey(control)
	}
	return child.ExitCode("load", err)
}

func inherited() (net.Conn, error) {
	if path := os.Getenv(Control); path != "" {
		return net.Dial("unix", path)
	}
	f := os.NewFile(3, "control")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("open control channel: %w", err)
	}
	return conn, nil
}

// generator is the child's state between requests.
type generator struct {
	side     Side
	listener *listener
	job      *job
}

// obey answers requests until the channel closes. If no request comes in time
// during a run, it returns an error, and the process and its traffic end.
func (a *generator) obey(control net.Conn) error {
	in, out := json.NewDecoder(control), json.NewEncoder(control)
	for {
		var q request
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read control channel: %w", err)
		}
		r, err := a.handle(q)
		if err != nil {
			r.Fault = newError(a.side, err)
		}
		if err := control.SetReadDeadline(a.deadline()); err != nil {
			return fmt.Errorf("bound control channel: %w", err)
		}
		if err := out.Encode(r); err != nil {
			return fmt.Errorf("answer control channel: %w", err)
		}
	}
}

// deadline returns the time by which the next request must come; without a run, the
// zero time, which means no deadline.
func (a *generator) deadline() time.Time {
	if a.job == nil {
		return time.Time{}
	}
	limit := a.job.spec.Warmup + a.job.spec.Duration + grace
	if a.job.spec.Count > 0 || a.job.spec.Attempts > 0 {
		limit += countLimit
	}
	return time.Now().Add(limit)
}

func (a *generator) handle(q request) (r reply, err error) {
	switch q.Do {
	case doListen:
		r.Addr, err = a.listen(q)
	case doArm:
		err = a.arm(q)
	case doConnect:
		err = a.connect(q)
	case doFinish:
		r.Outcome, err = a.finish()
	default:
		return a.edge(q)
	}
	return r, err
}

// edge handles the requests within a run, and returns a stream's failure.
func (a *generator) edge(q request) (r reply, err error) {
	if a.job == nil {
		return r, fmt.Errorf("%s: no run is active", q.Do)
	}
	switch q.Do {
	case doBegin:
		r.Edge = a.job.enter(phaseWindow)
	case doEnd:
		r.Edge = a.job.enter(phaseAfter)
	case doAwait:
		// With a count or a number of attempts, the senders end by themselves.
		a.job.senders.Wait()
	case doQuiet:
		a.job.hush()
	default:
		return r, fmt.Errorf("unknown request %q", q.Do)
	}
	return r, a.job.failure()
}

func (a *generator) listen(q request) (addr netip.AddrPort, err error) {
	a.side = ServerSide
	l, err := listen(q.Addr)
	if err != nil {
		return addr, err
	}
	if a.listener != nil {
		a.listener.close()
	}
	a.listener = l
	return l.addr, nil
}

func (a *generator) arm(q request) error {
	if a.listener == nil || a.job != nil {
		return errors.New("arm: the server does not listen, or a run is active")
	}
	if err := q.Spec.check(); err != nil {
		return fmt.Errorf("arm: %w", err)
	}
	a.job = newJob(ServerSide, q)
	a.job.serveRun(a.listener)
	if q.Spec.TLS {
		return a.job.serveTLS(q.Addr.Port())
	}
	return nil
}

func (a *generator) connect(q request) error {
	a.side = ClientSide
	if a.job != nil {
		return errors.New("connect: a run is active")
	}
	if err := q.Spec.check(); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	a.job = newJob(ClientSide, q)
	return a.job.connectRun(q.Addr)
}

// finish ends the run, if there is one. So a parent that cleans up after a failure
// need not know whether the run had begun.
func (a *generator) finish() (outcome, error) {
	if a.job == nil {
		return outcome{}, nil
	}
	j := a.job
	a.job = nil
	return j.finish()
}
