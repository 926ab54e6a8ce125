// Package probe confirms an explanation with one real packet: a TCP SYN or an
// empty UDP datagram from the place where the flow begins. Netfilter traces it in
// every namespace on its path. The package sends nothing to other machines unless
// Options.Allow permits it. The kernel removes everything that it sets up when
// its sockets are closed.
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
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/nft"
	"fairlead/internal/model"
)

// Options limit a probe.
type Options struct {
	// Timeout is how long to wait for an answer.
	Timeout time.Duration
	// Allow is an address to which the packet may be sent although it is not an
	// address of this host or of its namespaces.
	Allow netip.Addr
}

// ErrNotLocal means that the packet would leave this host, and Options.Allow does
// not permit that.
var ErrNotLocal = errors.New("it is not an address of this host or of its namespaces")

// NotSent is the result if the flow begins at another machine: the probe then
// sends nothing, and waits for a packet of that machine.
const NotSent = "not sent"

// drain is how long after the packet its trace events may arrive.
const drain = 20 * time.Millisecond

// step is the interval between checks whether the packet was dropped.
const step = 100 * time.Millisecond

// run is one probe.
type run struct {
	world   *hostview.World
	e       *flow.Explanation
	opt     Options
	tracers map[string]*nft.Tracer
	seen    map[string][]nft.TraceEvent
	counts  map[string]uint64 // of the port mappings, before the probe
	knock   *inspect.Knock
	result  string
	// others are explanations of the same flow with the other real servers of a
	// service, if its choice cannot be known.
	others []flow.Explanation
}

// Send probes the flow and records the result in the explanation and its hops.
// Returns ErrNotLocal if the packet would leave this host and opt.Allow is not
// its destination. Returns the context's cause, after recording the result, if
// ctx ended.
func Send(ctx context.Context, w *hostview.World, e *flow.Explanation, opt Options) (err error) {
	r := &run{world: w, e: e, opt: opt, tracers: map[string]*nft.Tracer{}, seen: map[string][]nft.TraceEvent{}}
	if to := e.Destination.Addr(); to != opt.Allow && !onThisHost(w, *e) {
		return fmt.Errorf("probe %s: %w: to send a packet to it, use --probe=%s", e.Destination, ErrNotLocal, to)
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if !e.Outside {
		if err := r.open(); err != nil {
			return err
		}
	}
	if err := r.explainAgain(); err != nil {
		return err
	}
	if err := r.watch(); err != nil {
		return err
	}
	if r.counts, err = r.mappingCounts(); err != nil {
		return fmt.Errorf("read the counters of eBPF port mappings: %w", err)
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
		r.knock, err = h.Inspect().Knock(r.e.Proto, from, r.e.Destination)
	}
	return err
}

// watch begins to trace in every namespace on the path.
func (r *run) watch() error {
	matches := []nft.TraceMatch{{Proto: r.e.Proto, Src: netip.AddrPortFrom(r.e.Source, 0),
		Dst: netip.AddrPortFrom(netip.Addr{}, r.e.Destination.Port())}}
	if r.knock != nil {
		matches = []nft.TraceMatch{{Proto: r.e.Proto, Src: netip.AddrPortFrom(netip.Addr{}, r.knock.Local.Port())}}
	}
	// A packet that a proxy sends, or whose source is translated, may have another
	// source port.
	places := []string{r.e.Origin}
	for _, e := range append([]flow.Explanation{*r.e}, r.others...) {
		for i, h := range e.Hops {
			switch {
			case h.Kind == flow.Proxy && i+1 < len(e.Hops):
				matches = append(matches, nft.TraceMatch{Proto: e.Proto, Dst: e.Hops[i+1].Destination})
			case h.Source.IsValid() && h.Source.Addr() != e.Source && (h.Kind == flow.NAT || h.Kind == flow.EBPF):
				matches = append(matches, nft.TraceMatch{Proto: e.Proto,
					Src: netip.AddrPortFrom(h.Source.Addr(), 0), Dst: h.Destination})
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
		if r.tracers[netns], err = h.NFT().Trace(matches); err != nil {
			delete(r.tracers, netns)
			return fmt.Errorf("in %s: %w", r.world.Name(netns), err)
		}
	}
	return nil
}

// send sends the packet, waits for the answer, and reads the traces.
func (r *run) send(ctx context.Context) error {
	deadline := time.Now().Add(r.opt.Timeout)
	if r.knock == nil {
		return r.await(ctx, deadline)
	}
	err := r.knock.Send()
	if err != nil {
		r.result = inspect.Meaning(err)
	} else if r.result, err = r.answer(ctx, deadline); err != nil {
		return err
	}
	// A proxy accepts the connection before it dials.
	proxied := slices.ContainsFunc(r.e.Hops, func(h flow.Hop) bool { return h.Kind == flow.Proxy })
	for proxied && !r.arrived() && r.dropped() == "" && time.Now().Before(deadline) && ctx.Err() == nil {
		if err := r.read(); err != nil {
			return err
		}
	}
	return r.read()
}

// answer waits for an answer, a trace event that reports a drop, the end of ctx,
// or the deadline.
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
			return inspect.Unanswered, nil
		}
		if err := r.read(); err != nil || r.dropped() != "" || r.e.Proto == model.UDP && r.arrived() {
			return inspect.Unanswered, err
		}
	}
}

// arrived reports whether the packet was seen at the last hop that can be seen.
// Many UDP servers do not answer an empty datagram.
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
	return slices.ContainsFunc(r.seen[c.Netns], func(s nft.TraceEvent) bool {
		return s.Hook == c.Hook && (c.Link == "" || s.In == c.Link || s.Out == c.Link)
	})
}

// await waits for a packet of a client on another machine.
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

// read reads the trace events that have arrived, or arrive within drain.
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
