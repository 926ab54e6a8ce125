package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"
)

// Hooks are called at the edges of the window, while traffic flows and at the same
// time as the children read their counters. A nil hook is not called; an error of a
// hook ends the run.
type Hooks struct {
	Begin func() error
	End   func() error
}

// Run drives one workload from the client through target to the server and
// measures its window. The target may be another address than the server's if NAT,
// a proxy or a balancer is between them. The error contains an *Error if a child
// reported it, and is ErrRefused, ErrNoAnswer or ErrClosed if the target failed in
// that manner. It wraps a hook's error.
//
// Both children are ready for the next run afterwards, even if this one failed. Only
// a child that owes an answer when ctx ends, or whose control channel breaks, is
// killed.
func Run(ctx context.Context, c *Client, s *Server, target netip.AddrPort, spec Spec, hooks Hooks,
) (Measurement, error) {
	target = netip.AddrPortFrom(target.Addr().Unmap(), target.Port())
	if spec.Workload == UDPBulk && spec.Size == 0 && target.Addr().Is6() {
		spec.Size = MaxDatagram6
	}
	spec, err := spec.Normal()
	if err != nil {
		return Measurement{}, fmt.Errorf("run load: %w", err)
	}
	r := &run{client: c.process, server: s.process, target: target, spec: spec, hooks: hooks, token: rand.Uint64()}
	err = r.traffic(ctx)
	// The children must finish after a failure and after ctx has ended too. Then
	// they stay usable, and the error includes the cause that a stream reported.
	if e := r.both(context.WithoutCancel(ctx), doFinish, nil); e != nil && (err == nil || e.Error() != err.Error()) {
		err = errors.Join(err, e)
	}
	if err != nil {
		return Measurement{}, fmt.Errorf("run %s to %s: %w", spec.Workload, target, err)
	}
	return r.measurement()
}

// run is the parent's state of one run.
type run struct {
	client, server *process
	target         netip.AddrPort
	spec           Spec
	hooks          Hooks
	token          uint64

	begin, end  edges
	clientEnded outcome
	serverEnded outcome
}

// edges are the two sides' readings of one edge of the window.
type edges struct{ client, server edge }

// traffic performs a run from arming the server to stopping the senders.
func (r *run) traffic(ctx context.Context) error {
	q := request{Addr: r.target, Token: r.token, Spec: r.spec}
	q.Do = doArm
	if _, err := r.server.ask(ctx, q); err != nil {
		return err
	}
	q.Do = doConnect
	if _, err := r.client.ask(ctx, q); err != nil {
		return err
	}
	if err := sleep(ctx, r.spec.Warmup); err != nil {
		return err
	}
	if err := r.both(ctx, doBegin, r.hooks.Begin); err != nil {
		return err
	}
	if err := r.window(ctx); err != nil {
		return err
	}
	if err := r.both(ctx, doEnd, r.hooks.End); err != nil {
		return err
	}
	return r.both(ctx, doQuiet, nil)
}

// window waits until the window's duration is over, or until the client has made its
// number of connections or attempts.
func (r *run) window(ctx context.Context) error {
	if r.spec.Count == 0 && r.spec.Attempts == 0 {
		return sleep(ctx, r.spec.Duration)
	}
	_, err := r.client.ask(ctx, request{Do: doAwait})
	return err
}

// both sends a request to both sides at once and calls the hook meanwhile.
func (r *run) both(ctx context.Context, do string, hook func() error) error {
	type answer struct {
		reply
		err error
	}
	ask := func(p *process) <-chan answer {
		to := make(chan answer, 1)
		go func() {
			reply, err := p.ask(ctx, request{Do: do})
			to <- answer{reply, err}
		}()
		return to
	}
	fromServer, fromClient := ask(r.server), ask(r.client)
	var err error
	if hook != nil {
		err = hook()
	}
	s, c := <-fromServer, <-fromClient
	r.keep(do, c.reply, s.reply)
	return errors.Join(err, c.err, s.err)
}

func (r *run) keep(do string, client, server reply) {
	switch do {
	case doBegin:
		r.begin = edges{client.Edge, server.Edge}
	case doEnd:
		r.end = edges{client.Edge, server.Edge}
	case doFinish:
		r.clientEnded, r.serverEnded = client.Outcome, server.Outcome
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
