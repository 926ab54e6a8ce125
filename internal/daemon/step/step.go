// Package step runs the steps of requests under the daemon's mutex, and repeats them after what they wait for: ports of
// the proxy, releases of DHCP leases, resets of clients. It waits without the mutex (ADR 64), and does not know what a
// step does.
//
//	request ──► Do ──► Once ──► the step, with the mutex
//	            ▲ │
//	            │ └──► wait for ports, releases and resets, without the mutex
//	            └──────┘
package step

import (
	"context"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/leases"
	"fairlead/internal/daemon/resets"
	"fairlead/internal/daemon/sockets"
	"fairlead/internal/daemon/state"
	"fairlead/internal/lock"
)

// Limit is the timeout of one step of the engine.
const Limit = 2 * time.Minute

// Runner runs steps. Its methods lock the mutex of the state, unless they say something else.
type Runner struct {
	state  *state.State
	ports  *sockets.Proxies
	resets *resets.Queue
	leases *leases.Clients
	// runs is true while Once runs. The mutex of the state protects it.
	runs bool
}

// NewRunner returns a Runner, which waits for the ports of the proxy, for resets and for the DHCP clients of attachments.
func NewRunner(s *state.State, ports *sockets.Proxies, queue *resets.Queue, clients *leases.Clients) *Runner {
	return &Runner{state: s, ports: ports, resets: queue, leases: clients}
}

// Once locks the mutex and calls f. Only f may apply a state, because the callers of Once repeat it if it needs ports
// that the proxy has not opened yet, for example because the proxy has died.
func (r *Runner) Once(f func() error) error {
	r.state.Lock()
	defer r.state.Unlock()
	r.runs = true
	r.state.MarkProblems()
	defer func() { r.runs = false }()
	return f()
}

// Assert panics with the text if the check of package lock runs and no step does. The mutex must be locked.
func (r *Runner) Assert(text string) { lock.Assert(r.runs, text) }

// Do calls f once, and again each time the proxy has opened ports that f needed. If f has changed the ports, Do returns
// when the proxy has them. It waits for the proxy without the mutex, at most ten seconds each time. It calls f again,
// too, when the DHCP clients that f has stopped have released their leases (releasing). In the end it waits without the
// mutex until the clients are reset whose connections f has ended.
func (r *Runner) Do(ctx context.Context, f func() error) error {
	var own <-chan struct{}
	f = r.resets.Own(&own, f)
	err := r.releasing(func() error { return r.ports.Do(ctx, func() error { return r.Once(f) }) })
	resets.Wait(ctx, own)
	return err
}

// For is Do with a result: that of the last call of f.
func For[R any](ctx context.Context, r *Runner, f func() (R, error)) (result R, err error) {
	err = r.Do(ctx, func() (err error) { result, err = f(); return err })
	return result, err
}

// Repeat calls f once, and again each time the proxy has opened ports that f needed. It does not wait for resets.
func (r *Runner) Repeat(ctx context.Context, f func() error) error {
	return r.ports.Repeat(ctx, func() error { return r.Once(f) })
}

// Soon is Do for callers that must not wait: it repeats f in the background. It logs the error of f.
func (r *Runner) Soon(what string, f func() error) { r.Later(what, r.Once(f), f) }

// Later logs the error of f, or repeats f in the background if f needed ports that the proxy has not opened yet. It
// neither needs nor locks the mutex.
func (r *Runner) Later(what string, err error, f func() error) {
	if sockets.AreUnopened(err) {
		go func() { r.Later(what, r.Do(r.state.Life, f), f) }()
	} else if err != nil && r.state.Life.Err() == nil {
		r.state.Log.Error(what, "error", err)
	}
}

// ResetLater implements engine.Config.Later. It neither needs nor locks the mutex.
func (r *Runner) ResetLater(finish func() error) {
	r.resets.Add(func() {
		r.state.Warn("reset clients of services", finish())
		r.state.Reapplied.Send() // the virtual addresses may have been removed
	})
}

// StartLeasing starts the DHCP clients that do not run. The mutex must be locked.
func (r *Runner) StartLeasing() {
	w := r.state.Desired()
	for _, a := range w.Attachments {
		if !a.DHCP || a.Sandbox == "" || r.state.Problems[a.Name] != "" {
			continue
		}
		id := ""
		if n, _ := w.Network(a.Network); n.Traits().ParentMAC {
			id = a.Name // its links share a MAC address
		}
		r.leases.Start(a, id)
	}
}

// AwaitLease starts the DHCP client of an attachment, if it does not run, and waits for its first lease. Its error is a
// Fault with code Failed.
func (r *Runner) AwaitLease(ctx context.Context, name string) error {
	r.state.Lock()
	r.StartLeasing()
	r.state.Unlock()
	if err := r.leases.Await(ctx, name); err != nil {
		return &api.Fault{Code: api.Failed, Err: err}
	}
	return nil
}

// releasing repeats a step while DHCP clients that it has stopped release their leases, and starts them again if the
// step fails.
func (r *Runner) releasing(step func() error) error {
	err := r.leases.Repeat(step)
	if err != nil {
		r.state.Lock()
		defer r.state.Unlock()
		r.StartLeasing()
	}
	return err
}
