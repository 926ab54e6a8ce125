package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Role is the name under which Main must be given to child.Dispatch.
const Role = "proxy"

// controlFD is the descriptor on which the child finds its control socket.
const controlFD = 3

// limits bounds what clients can make the proxy hold.
type limits struct {
	// answered is the idle time of a UDP flow that has seen answers: longer
	// than the 60 s retry of DNS, SIP and QUIC keepalives needs, shorter
	// than conntrack's 120 s, so that a NAT before us forgets later than we.
	answered time.Duration
	// oneWay is the idle time of a flow without an answer, as conntrack's:
	// a scan or a spoofed flood must not fill the table for long.
	oneWay time.Duration
	// flows is the number of UDP flows of one worker; the oldest goes first.
	// Each takes a descriptor and about 2 KB of kernel memory.
	flows int
}

func defaultLimits() limits {
	return limits{answered: 90 * time.Second, oneWay: 30 * time.Second, flows: 8192}
}

// Main is the child's main function.
func Main() int { return run(defaultLimits()) }

func run(lim limits) int {
	if err := serve(lim, os.NewFile(controlFD, "control")); err != nil {
		fmt.Fprintln(os.Stderr, "fairlead proxy:", err)
		return 1
	}
	return 0
}

// maxWorkers: beyond four cores a host's traffic is bound by the kernel's
// own work for it, and an idle worker still costs a thread.
const maxWorkers = 4

// serve answers requests until the parent is gone.
func serve(lim limits, control io.ReadWriter) error {
	raiseFiles()
	n := min(runtime.NumCPU(), maxWorkers)
	runtime.GOMAXPROCS(n + 1)
	workers, err := startWorkers(n, lim)
	if err != nil {
		return err
	}
	ports := newRegistry(workers)
	asks, answers := json.NewDecoder(control), json.NewEncoder(control)
	for {
		var ask request
		if err := asks.Decode(&ask); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		answer := response{ID: ask.ID}
		if ask.Set != nil {
			answer.fail(ports.set(*ask.Set))
		} else {
			answer.Stats = total(workers)
		}
		if err := answers.Encode(answer); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
	}
}

// raiseFiles lifts the limit on open files as far as we may: to the kernel's
// own default (fs.nr_open) when privileged, else to the hard limit. Failing,
// we go on with fewer connections.
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
