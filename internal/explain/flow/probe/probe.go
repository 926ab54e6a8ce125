// Package probe confirms an explanation by one real packet: a TCP SYN or an
// empty UDP datagram from where the flow begins, while netfilter traces it in
// every namespace on its way. It sends nothing to other machines unless it is
// told to, and what it sets up goes with its sockets.
package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/hostview"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
)

// Options bound a probe.
type Options struct {
	// Patience is how long to wait for an answer.
	Patience time.Duration
	// Abroad is an address that may be probed although it is none of this host's
	// or of its namespaces'.
	Abroad netip.Addr
}

// ErrAbroad says that the flow's end is not on this host.
var ErrAbroad = errors.New("it is no address of this host nor of its namespaces")

// NotSent is the result where nothing could be sent: packets of the flow's
// client were waited for.
const NotSent = "not sent"

// drain is how long traces may be behind the packet that they tell of.
const drain = 20 * time.Millisecond

// step is how often is looked whether it was dropped.
const step = 100 * time.Millisecond

// run is one probe.
type run struct {
	world   *hostview.World
	e       *flow.Explanation
	opt     Options
	tracers map[string]*kernel.Tracer
	seen    map[string][]kernel.TraceEvent
	counts  map[string]uint64 // of the leads, before
	knock   *kernel.Knock
	result  string
	// others are explanations of the same flow with other real servers of a
	// service, where nobody can say which it chooses.
	others []flow.Explanation
}

// Send probes the flow and notes in the explanation what was seen of each hop.
func Send(ctx context.Context, w *hostview.World, e *flow.Explanation, opt Options) (err error) {
	r := &run{world: w, e: e, opt: opt, tracers: map[string]*kernel.Tracer{}, seen: map[string][]kernel.TraceEvent{}}
	if to := e.Destination.Addr(); to != opt.Abroad && !here(w, *e) {
		return fmt.Errorf("probe %s: %w: say --probe=%s to send a packet there all the same", e.Destination, ErrAbroad, to)
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if !e.Outside {
		if err := r.open(); err != nil {
			return err
		}
	}
	if err := r.subLink(); err != nil {
		return err
	}
	if err := r.watch(); err != nil {
		return err
	}
	if r.counts, err = r.mappingCounts(); err != nil {
		return fmt.Errorf("read what eBPF programs count: %w", err)
	}
	if err := r.send(ctx); err != nil {
		return err
	}
	if err := r.judgeAll(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func (r *run) close() error {
	var errs []error
	if r.knock != nil {
		errs = append(errs, r.knock.Close())
	}
	for _, t := range r.tracers {
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}

// open opens the socket where the flow begins.
func (r *run) open() error {
	from := r.e.Source
	if len(r.e.Hops) > 0 && r.e.Hops[0].Kind == flow.Connect {
		from = netip.Addr{}
	}
	h, err := r.world.Host(r.e.Origin)
	if err == nil {
		r.knock, err = h.Knock(r.e.Proto, from, r.e.Destination)
	}
	return err
}

// watch begins to trace in every namespace on the way.
func (r *run) watch() error {
	matches := []kernel.TraceMatch{{Proto: r.e.Proto, Src: netip.AddrPortFrom(r.e.Source, 0), Dst: netip.AddrPortFrom(netip.Addr{}, r.e.Destination.Port())}}
	if r.knock != nil {
		matches = []kernel.TraceMatch{{Proto: r.e.Proto, Src: netip.AddrPortFrom(netip.Addr{}, r.knock.Local.Port())}}
	}
	// What is sent anew, or from another address, may have another port.
	places := []string{r.e.Origin}
	for _, e := range append([]flow.Explanation{*r.e}, r.others...) {
		for i, h := range e.Hops {
			switch {
			case h.Kind == flow.Proxy && i+1 < len(e.Hops):
				matches = append(matches, kernel.TraceMatch{Proto: e.Proto, Dst: e.Hops[i+1].Destination})
			case h.Source.IsValid() && h.Source.Addr() != e.Source && (h.Kind == flow.NAT || h.Kind == flow.EBPF):
				matches = append(matches, kernel.TraceMatch{Proto: e.Proto, Src: netip.AddrPortFrom(h.Source.Addr(), 0), Dst: h.Destination})
			}
			places = append(places, h.Clue.Netns)
		}
	}
	slices.Sort(places)
	for _, netns := range slices.Compact(places) {
		h, err := r.world.Host(netns)
		if err != nil {
			return err
		}
		if r.tracers[netns], err = h.Trace(matches); err != nil {
			delete(r.tracers, netns)
			return fmt.Errorf("in %s: %w", r.world.Name(netns), err)
		}
	}
	return nil
}

// send sends the packet, waits for the answer, and reads the traces.
func (r *run) send(ctx context.Context) error {
	deadline := time.Now().Add(r.opt.Patience)
	if r.knock == nil {
		return r.await(ctx, deadline)
	}
	err := r.knock.Send()
	if err != nil {
		r.result = kernel.Meaning(err)
	} else if r.result, err = r.answer(ctx, deadline); err != nil {
		return err
	}
	// A proxy answers before it dials.
	proxied := slices.ContainsFunc(r.e.Hops, func(h flow.Hop) bool { return h.Kind == flow.Proxy })
	for proxied && !r.arrived() && r.dropped() == "" && time.Now().Before(deadline) && ctx.Err() == nil {
		if err := r.read(); err != nil {
			return err
		}
	}
	return r.read()
}

// answer waits for what becomes of the packet: an answer, a trace that says that
// it was dropped, an interruption, or the deadline.
func (r *run) answer(ctx context.Context, deadline time.Time) (string, error) {
	for {
		next := time.Now().Add(step)
		if next.After(deadline) {
			next = deadline
		}
		result, err := r.knock.Result(next)
		if err != nil || result != "" {
			return result, err
		}
		if !time.Now().Before(deadline) || ctx.Err() != nil {
			return kernel.Unanswered, nil
		}
		if err := r.read(); err != nil || r.dropped() != "" || r.e.Proto == model.UDP && r.arrived() {
			return kernel.Unanswered, err
		}
	}
}

// arrived reports whether the packet was seen at the last hop that can be seen:
// many that listen on UDP do not answer nothing.
func (r *run) arrived() bool {
	for _, h := range slices.Backward(r.e.Hops) {
		if h.Clue.Hook != "" {
			return r.passed(h.Clue)
		}
	}
	return false
}

// passed reports whether the packet was seen at a hook.
func (r *run) passed(c flow.Clue) bool {
	return slices.ContainsFunc(r.seen[c.Netns], func(s kernel.TraceEvent) bool {
		return s.Hook == c.Hook && (c.Link == "" || s.In == c.Link || s.Out == c.Link)
	})
}

// await waits for a packet of a client that we cannot be.
func (r *run) await(ctx context.Context, deadline time.Time) error {
	r.result = NotSent
	for time.Now().Before(deadline) && ctx.Err() == nil {
		if err := r.read(); err != nil {
			return err
		}
		if len(r.seen[""]) > 0 {
			return r.read()
		}
	}
	return nil
}

// read reads the traces that are there, or come soon.
func (r *run) read() error {
	for netns, t := range r.tracers {
		for {
			found, err := t.Next(time.Now().Add(drain))
			if err != nil {
				return err
			}
			if len(found) == 0 {
				break
			}
			r.seen[netns] = append(r.seen[netns], found...)
		}
	}
	return nil
}
