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
	"fairlead/internal/explain/flow/sight"
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
const drain = 50 * time.Millisecond

// run is one probe.
type run struct {
	world   *sight.World
	e       *flow.Explanation
	opt     Options
	tracers map[string]*kernel.Tracer
	seen    map[string][]kernel.Sighting
	knock   *kernel.Knock
	result  string
}

// Send probes the flow and notes in the explanation what was seen of each hop.
func Send(ctx context.Context, w *sight.World, e *flow.Explanation, opt Options) (err error) {
	r := &run{world: w, e: e, opt: opt, tracers: map[string]*kernel.Tracer{}, seen: map[string][]kernel.Sighting{}}
	to := e.Destination.Addr()
	if _, here := w.Holder(to); !here && !w.Own(to) && to != opt.Abroad {
		return fmt.Errorf("probe %s: %w: say --probe=%s to send a packet there all the same", e.Destination, ErrAbroad, to)
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if !e.Outside {
		if err := r.open(); err != nil {
			return err
		}
	}
	if err := r.watch(); err != nil {
		return err
	}
	if err := r.send(ctx); err != nil {
		return err
	}
	if err := r.judge(); err != nil {
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
	k, err := r.world.Host(r.e.Origin).Knock(r.e.Proto, from, r.e.Destination)
	r.knock = k
	return err
}

// watch begins to trace in every namespace on the way.
func (r *run) watch() error {
	matches := []kernel.TraceMatch{{Proto: r.e.Proto, Src: netip.AddrPortFrom(r.e.Source, 0), Dst: netip.AddrPortFrom(netip.Addr{}, r.e.Destination.Port())}}
	if r.knock != nil {
		matches = []kernel.TraceMatch{{Proto: r.e.Proto, Src: netip.AddrPortFrom(netip.Addr{}, r.knock.Local.Port())}}
	}
	for i, h := range r.e.Hops {
		if h.Kind == flow.Proxy && i+1 < len(r.e.Hops) { // what it sends has a port of its own
			matches = append(matches, kernel.TraceMatch{Proto: r.e.Proto, Dst: r.e.Hops[i+1].Destination})
		}
	}
	places := []string{r.e.Origin}
	for _, h := range r.e.Hops {
		places = append(places, h.Clue.Netns)
	}
	slices.Sort(places)
	for _, netns := range slices.Compact(places) {
		t, err := r.world.Host(netns).Trace(matches)
		if err != nil {
			return fmt.Errorf("in %s: %w", r.world.Name(netns), err)
		}
		r.tracers[netns] = t
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
	return r.read()
}

// answer waits for what becomes of the packet, in steps, so that an
// interruption ends it.
func (r *run) answer(ctx context.Context, deadline time.Time) (string, error) {
	for {
		next := time.Now().Add(4 * drain)
		if next.After(deadline) {
			next = deadline
		}
		result, err := r.knock.Result(next)
		if err != nil || result != kernel.Unanswered || !time.Now().Before(deadline) || ctx.Err() != nil {
			return result, err
		}
	}
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

// judge compares what was seen with each hop, and the end with the outcome.
func (r *run) judge() error {
	reached := false
	for i := range r.e.Hops {
		h := &r.e.Hops[i]
		seen, known, err := r.sees(*h)
		if err != nil {
			return err
		}
		switch {
		case known && seen:
			h.Seen, reached = "seen", true
		case known:
			h.Seen, reached = "not seen", false
		}
	}
	p := &flow.Probe{Result: r.result, Dropped: r.dropped(), Sent: r.sent()}
	p.Agrees = r.agrees(reached, p.Dropped)
	r.e.Probe = p
	return nil
}

func (r *run) sent() string {
	if r.knock == nil {
		return fmt.Sprintf("nothing: %s is another machine; waited for a packet of its own", r.e.Source)
	}
	what := "a TCP SYN"
	if r.e.Proto == model.UDP {
		what = "an empty UDP datagram"
	}
	return fmt.Sprintf("%s to %s from %s, source port %d", what, r.e.Destination, r.world.Name(r.e.Origin), r.knock.Local.Port())
}

// sees reports whether the packet was seen at a hop, and whether it could have
// been.
func (r *run) sees(h flow.Hop) (seen, known bool, err error) {
	switch {
	case h.Clue.Led:
		seen, err = r.led()
		return seen, true, err
	case h.Clue.Turned:
		seen, err = r.turned(h.Destination)
		return seen, r.knock != nil, err
	case h.Clue.Hook == "":
		return false, false, nil
	}
	seen = slices.ContainsFunc(r.seen[h.Clue.Netns], func(s kernel.Sighting) bool {
		return s.Hook == h.Clue.Hook && (h.Clue.Link == "" || s.In == h.Clue.Link || s.Out == h.Clue.Link)
	})
	if seen && h.Clue.Taken && r.knock != nil && r.result == kernel.Answered {
		seen, err = r.taken(h)
	}
	return seen, true, err
}

// led reports whether our eBPF programs remember the flow.
func (r *run) led() (bool, error) {
	flows, err := r.world.Host("").LedFlows()
	for _, f := range flows {
		if f.Host == r.e.Destination && f.UDP == (r.e.Proto == model.UDP) && f.Client.Addr() == r.e.Source &&
			(r.knock == nil || f.Client.Port() == r.knock.Local.Port()) {
			return true, err
		}
	}
	return false, err
}

// turned reports whether the probe's socket speaks to another than it dialled.
func (r *run) turned(to netip.AddrPort) (bool, error) {
	pairs, err := r.world.Host(r.e.Origin).Pairs(r.e.Proto, r.knock.Local.Port())
	return slices.ContainsFunc(pairs, func(p kernel.Pair) bool { return p.Local.Port() == r.knock.Local.Port() && p.Remote == to }), err
}

// taken reports whether the end has a socket for the connection.
func (r *run) taken(h flow.Hop) (bool, error) {
	pairs, err := r.world.Host(h.Clue.Netns).Pairs(r.e.Proto, h.Destination.Port())
	return slices.ContainsFunc(pairs, func(p kernel.Pair) bool { return p.Local == h.Destination }), err
}

// dropped names the rule that a trace has seen drop the packet.
func (r *run) dropped() string {
	for netns, all := range r.seen {
		for _, s := range all {
			if s.Dropped {
				return fmt.Sprintf("%s, %s %s %s: %s", r.world.Name(netns), s.Family, s.Table, s.Chain, r.rule(netns, s))
			}
		}
	}
	return ""
}

// rule is the text of the rule that a trace names.
func (r *run) rule(netns string, s kernel.Sighting) string {
	if s.Handle == 0 {
		return "policy drop"
	}
	rs, _, err := r.world.Rules(netns)
	if c, ok := rs.Find(s.Family+" "+s.Table, s.Chain); ok && err == nil {
		for _, rule := range c.Rules {
			if rule.Handle == s.Handle {
				return rule.String()
			}
		}
	}
	return fmt.Sprintf("rule with handle %d", s.Handle)
}

// agrees reports whether the packet ended as explained.
func (r *run) agrees(reached bool, dropped string) bool {
	if r.result == NotSent {
		return reached && (dropped != "") == (r.e.Outcome == flow.Dropped)
	}
	switch r.e.Outcome {
	case flow.Delivered:
		return reached && (r.result == kernel.Answered || r.e.Proto == model.UDP && r.result == kernel.Unanswered)
	case flow.Refused:
		return r.result == kernel.Refused
	case flow.Dropped:
		return r.result != kernel.Answered && dropped != ""
	case flow.NoRoute:
		return r.result == kernel.Unreachable || r.result == kernel.Unanswered
	case flow.Leaves:
		return reached
	}
	return false
}
