package probe

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/explain/flow"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/nft"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
)

// judge marks each hop as seen or not seen, and compares the result with the
// explained outcome.
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
		return fmt.Sprintf("nothing: %s is another machine; waited for a packet from it", r.e.Source)
	}
	what := "a TCP SYN"
	if r.e.Proto == model.UDP {
		what = "an empty UDP datagram"
	}
	return fmt.Sprintf("%s to %s from %s, source port %d", what, r.e.Destination, r.world.Name(r.e.Origin),
		r.knock.Local.Port())
}

// sees reports whether the packet was seen at a hop, and whether it could have
// been.
func (r *run) sees(h flow.Hop) (seen, known bool, err error) {
	switch {
	case h.Clue.Translated:
		seen, err = r.translated(h.Destination)
	case h.Clue.Redirected && r.knock != nil:
		seen, err = r.redirected(h.Destination)
	case h.Clue.Hook == "":
		return false, false, nil
	default:
		seen = r.passed(h.Clue)
	}
	if !seen && err == nil && h.Clue.Mapping != "" { // the flow entry of a refused connection is removed at once
		seen, err = r.counted(h.Clue.Mapping)
	}
	if seen && h.Clue.Connected && r.knock != nil && r.result == inspect.Answered {
		seen, err = r.connected(h)
	}
	return seen, true, err
}

// counted reports whether a port mapping has counted a flow since the probe began.
func (r *run) counted(mapping string) (bool, error) {
	now, err := r.mappingCounts()
	return now[mapping] > r.counts[mapping], err
}

func (r *run) mappingCounts() (map[string]uint64, error) {
	h, err := r.world.Host("")
	if err != nil {
		return nil, err
	}
	return h.EBPF().MappingCounts()
}

// pairs lists the connected sockets of a namespace that use a port.
func (r *run) pairs(netns string, port uint16) ([]sockdiag.Pair, error) {
	h, err := r.world.Host(netns)
	if err != nil {
		return nil, err
	}
	return h.Sockets().Pairs(r.e.Proto, port)
}

// translated reports whether Fairlead's eBPF programs have an entry of the flow to
// an endpoint.
func (r *run) translated(to netip.AddrPort) (bool, error) {
	h, err := r.world.Host("")
	if err != nil {
		return false, err
	}
	flows, err := h.EBPF().EBPFFlows()
	for _, f := range flows {
		if f.Host == r.e.Destination && f.Endpoint == to && f.UDP == (r.e.Proto == model.UDP) &&
			f.Client.Addr() == r.e.Source &&
			(r.knock == nil || f.Client.Port() == r.knock.Local.Port()) {
			return true, err
		}
	}
	return false, err
}

// redirected reports whether the probe's socket is connected to the target, and
// not to the address that it dialled.
func (r *run) redirected(to netip.AddrPort) (bool, error) {
	pairs, err := r.pairs(r.e.Origin, r.knock.Local.Port())
	return slices.ContainsFunc(pairs, func(p sockdiag.Pair) bool {
		return p.Local.Port() == r.knock.Local.Port() &&
			p.Remote == to
	}), err
}

// connected reports whether the namespace of the hop has a socket for the
// connection.
func (r *run) connected(h flow.Hop) (bool, error) {
	pairs, err := r.pairs(h.Clue.Netns, h.Destination.Port())
	return slices.ContainsFunc(pairs, func(p sockdiag.Pair) bool { return p.Local == h.Destination }), err
}

// dropped returns the rule that dropped the packet, from the traces; "" for none.
func (r *run) dropped() string {
	for netns, all := range r.seen {
		for _, s := range all {
			if s.Dropped {
				return fmt.Sprintf("%s, %s %s %s: %s", r.world.Name(netns), s.Family, s.Table, s.Chain,
					r.rule(netns, s))
			}
		}
	}
	return ""
}

// rule returns the text of the rule in a trace event.
func (r *run) rule(netns string, s nft.TraceEvent) string {
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
		return len(r.seen[""]) > 0 && reached && (dropped != "") == (r.e.Outcome == flow.Dropped)
	}
	switch r.e.Outcome {
	case flow.Delivered:
		return reached && (r.result == inspect.Answered || r.e.Proto == model.UDP && r.result == inspect.Unanswered)
	case flow.Refused:
		return r.result == inspect.Refused
	case flow.Dropped:
		return r.result != inspect.Answered && (dropped != "" || r.untraced())
	case flow.NoRoute:
		return r.result == inspect.Unreachable || r.result == inspect.Unanswered
	case flow.Leaves:
		return reached
	}
	return false
}

// untraced reports whether the explained drop is at a place that netfilter does
// not trace: legacy iptables, a bridge, rules of a link, or a drop of the answer.
func (r *run) untraced() bool {
	n := len(r.e.Hops)
	if n == 0 {
		return false
	}
	last := r.e.Hops[n-1]
	return last.Clue.Hook == "" || strings.Contains(last.By, rules.LegacyMark)
}
