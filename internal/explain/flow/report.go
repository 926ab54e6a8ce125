package flow

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// maxHops limits the hops of a packet in a forwarding loop.
const maxHops = 64

// report is what is known of a packet's path so far: its hops, how it ended, and
// what is uncertain.
type report struct {
	namespaces Namespaces
	out        Explanation
	back       []Hop // the hops of the answer
	// translated is true if Fairlead's eBPF programs, or a virtual service, forward
	// the answer.
	translated bool
	// reply is true if the packet is the answer, and refusal if the answer refuses the
	// flow.
	reply, refusal bool
	// established is true if the packet is not the first one of its connection.
	established bool
	err         error
	ended       bool
}

// name returns the name of a namespace that users know.
func (r *report) name(netns string) string { return r.namespaces.Name(netns) }

// hop records a hop.
func (r *report) hop(p packet, h Hop) {
	h.Number = len(r.out.Hops) + 1
	h.Source, h.Destination = p.src, p.dst
	r.out.Hops = append(r.out.Hops, h)
	r.out.Uncertain = r.out.Uncertain || h.Uncertain
	r.translated = r.translated || h.Kind == EBPF || h.Balance != nil
	if h.Number >= maxHops {
		r.end(Unknown, "the packet is in a forwarding loop")
	}
}

// end ends the walk. Later calls have no effect.
func (r *report) end(o Outcome, verdict string, args ...any) {
	if !r.ended {
		r.ended = true
		r.out.Outcome, r.out.Verdict = o, fmt.Sprintf(verdict, args...)
	}
}

// fail records an error, which ends the walk. It reports whether there is one.
func (r *report) fail(err error) bool {
	r.err = errors.Join(r.err, err)
	r.ended = r.ended || err != nil
	return err != nil
}

// finish returns the explanation of a flow to the address that was dialled.
func (r *report) finish(dialled netip.AddrPort) Explanation {
	if !r.ended {
		r.end(Unknown, "its further path is unknown")
	}
	if r.out.Outcome == Delivered {
		for _, h := range slices.Backward(r.back) {
			h.Number = len(r.out.Hops) + 1
			r.out.Hops = append(r.out.Hops, h)
		}
	}
	r.out.Destination = dialled
	if len(r.out.Hops) > 0 {
		r.out.Source = r.out.Hops[0].Source.Addr()
	}
	return r.out
}

// returned ends the walk of an answer that reached its client.
func (r *report) returned() { r.end(Delivered, "the answer comes back") }

// doubt marks the verdict as uncertain, and records why.
func (r *report) doubt(why string, args ...any) {
	r.out.Uncertain = true
	if text := fmt.Sprintf(why, args...); !slices.Contains(r.out.Caveats, text) {
		r.out.Caveats = append(r.out.Caveats, text)
	}
}

// answer records a hop of the answer. The answer passes the recorded hops in
// reverse order.
func (r *report) answer(netns, link, what string) {
	r.back = append(r.back, Hop{Kind: Answer, Where: r.name(netns), Link: link, What: what})
}

// unseen removes the clue of the previous hop, because netfilter does not see the
// packet there.
func (r *report) unseen(link string) {
	if last := len(r.out.Hops) - 1; last >= 0 && r.out.Hops[last].Clue.Netns == "" && r.out.Hops[last].Link == link {
		r.out.Hops[last].Clue = Clue{}
	}
}
