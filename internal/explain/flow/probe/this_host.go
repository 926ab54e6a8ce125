package probe

import (
	"net/netip"
	"slices"

	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/hostview"
)

// onThisHost reports whether every possible receiver of the packet is on this
// host: the destination, or all real servers of the service at the destination.
func onThisHost(w *hostview.World, e flow.Explanation) bool {
	is := func(a netip.Addr) bool { _, _, found := w.Holder(a); return found || w.IsLocal(a) }
	b := balance(e)
	if b == nil {
		return is(e.Destination.Addr())
	}
	return !slices.ContainsFunc(b.Candidates, func(c flow.Candidate) bool { return !is(c.At.Addr()) })
}

// balance returns the first choice of a real server on the path, nil for none.
func balance(e flow.Explanation) *flow.Balance {
	for _, h := range e.Hops {
		if h.Balance != nil {
			return h.Balance
		}
	}
	return nil
}

// explainAgain explains a flow to a service again with the probe's source port,
// which may change the chosen real server. If the choice cannot be known, it also
// explains the flow with each other real server that the service may choose.
func (r *run) explainAgain() error {
	b := balance(*r.e)
	if b == nil {
		return nil
	}
	f := r.e.Asked
	if r.knock != nil {
		f.FromPort = r.knock.Local.Port()
		e, err := flow.Explain(r.world.Facts(), f)
		if err != nil {
			return err
		}
		*r.e, b = e, balance(e)
	}
	if b == nil || b.Certain {
		return nil
	}
	for _, c := range b.Candidates {
		if c.Taken {
			continue
		}
		f.Server = c.At
		e, err := flow.Explain(r.world.Facts(), f)
		if err != nil {
			return err
		}
		taken := func(o flow.Candidate) bool { return o.Taken && o.At == c.At }
		if other := balance(e); other != nil && slices.ContainsFunc(other.Candidates, taken) {
			r.others = append(r.others, e)
		}
	}
	return nil
}

// judgeAll compares the probe with the explanation. If they disagree, it tries the
// explanations with other real servers, and keeps the first that agrees.
func (r *run) judgeAll() error {
	if err := r.judge(); err != nil || r.e.Probe.Agrees {
		return err
	}
	judged := *r.e
	for _, e := range r.others {
		*r.e = e
		if err := r.judge(); err != nil || r.e.Probe.Agrees {
			return err
		}
	}
	*r.e = judged
	return nil
}
