package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"fairlead/internal/child"

	"golang.org/x/sys/unix"
)

// Role is the name under which Main must be given to child.Dispatch.
const Role = "proxy"

// controlFD is the descriptor on which the child finds its control socket.
const controlFD = 3

// limits bounds the resources that clients can use.
type limits struct {
	// answered is the idle timeout of a UDP flow that has had answers: longer
	// than the 60 s that retries of DNS, SIP and QUIC keepalives need, shorter
	// than conntrack's 120 s, so that a NAT in front of the proxy forgets the
	// flow later than the proxy does.
	answered time.Duration
	// oneDirection is the idle timeout of a flow without an answer, the same as
	// conntrack's: a scan or a spoofed flood must not fill the table for long.
	oneDirection time.Duration
	// flows is the maximum of UDP flows per worker; see flowTable.evict.
	// Each flow takes a descriptor and about 2 KB of kernel memory.
	flows int
	// empty is how long a kept proxy without ports waits for the next Set
	// before it ends, which saves its parent the start of a new proxy.
	empty time.Duration
}

func defaultLimits() limits {
	return limits{answered: 90 * time.Second, oneDirection: 30 * time.Second, flows: 8192, empty: 10 * time.Second}
}

// Main is the child's main function.
func Main() int {
	// The kernel names a process by its program, which is /proc/self/exe here; ss
	// and top show that name. The proxy works without it, too.
	_ = os.WriteFile("/proc/self/comm", []byte(processName), 0)
	return run(defaultLimits())
}

// processName is what ss and top call the proxy.
const processName = "fairlead-proxy"

func run(lim limits) int {
	return child.ExitCode("proxy", serve(lim, os.NewFile(controlFD, "control")))
}

// maxWorkers limits the workers of each kind. With more than four cores, the kernel's own
// work limits the traffic, and an idle worker still costs a thread.
const maxWorkers = 4

// server is the state of the proxy process.
type server struct {
	workers []*worker
	limits  limits
	// over receives the reason why the process ends; nil is success.
	over chan error

	mu    sync.Mutex
	ports *registry
	// parents counts the open control sockets.
	parents int
	// stay is nil unless the proxy outlives its parents.
	stay *stay
}

// serve answers requests until the parent has closed the control socket. A kept
// proxy serves until it has no sockets and no connections.
func serve(lim limits, control io.ReadWriteCloser) error {
	raiseFiles()
	n := min(runtime.NumCPU(), maxWorkers)
	workers, err := startWorkers(n, lim)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(len(workers) + 1)
	s := &server{workers: workers, limits: lim, ports: newRegistry(workers), over: make(chan error, 1), parents: 1}
	go s.attend(control)
	return <-s.over
}

// attend serves one parent until its control socket is closed.
func (s *server) attend(control io.ReadWriteCloser) {
	err := s.converse(control)
	control.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parents--
	if s.stay == nil {
		s.end(err)
	} else {
		s.rest()
	}
}

// end ends the process. Only the first reason counts.
func (s *server) end(why error) {
	select {
	case s.over <- why:
	default:
	}
}

// converse answers requests until the control socket is closed.
func (s *server) converse(control io.ReadWriter) error {
	asks, answers := json.NewDecoder(control), json.NewEncoder(control)
	for {
		var ask request
		if err := asks.Decode(&ask); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		if err := answers.Encode(s.answer(ask, control)); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
	}
}

// answer carries out a request.
func (s *server) answer(ask request, control io.ReadWriter) response {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := response{ID: ask.ID}
	if s.stay != nil && s.stay.left && ask.Curtail == nil {
		answer.Left = true
		return answer
	}
	switch {
	case ask.Set != nil:
		answer.fail(s.set(*ask.Set))
	case ask.Keep != nil:
		answer.fail(s.outlive(*ask.Keep))
	case ask.Curtail != nil:
		answer.fail(s.curtail(*ask.Curtail))
	case ask.Ask == askStats:
		answer.Stats = total(s.workers)
		answer.Stats.CPUSeconds = cpuSeconds()
	case ask.Ask == askEach:
		answer.Each = s.ports.each()
	case ask.Ask == askConfig:
		answer.Config = &s.ports.config
	case ask.Ask == askSockets:
		answer.fail(s.ports.handOver(control))
		answer.Config = &s.ports.config
	case ask.Ask == askLeave:
		answer.fail(s.leave())
	default:
		answer.Fault = fmt.Sprintf("this proxy does not know the request %q", ask.Ask)
	}
	return answer
}

// set applies cfg, and makes the predecessor end the connections of all other
// listeners.
func (s *server) set(cfg Config) error {
	err := s.ports.set(cfg)
	if s.stay != nil {
		s.curtailBefore(s.ports.config)
		s.rest()
	}
	return err
}

// raiseFiles raises the limit on open files: to the kernel's default of
// fs.nr_open (1,048,576) if privileged, else to the hard limit. If that fails,
// the proxy runs with fewer connections.
func raiseFiles() {
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) != nil {
		return
	}
	most := max(files.Max, 1<<20)
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: most}) != nil {
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files.Max, Max: files.Max})
	}
}
