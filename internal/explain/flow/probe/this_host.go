package probe

import (
	"net/netip"
	"slices"

	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/hostview"
)

// here reports whether whoever may be sent the packet is on this host: who has
// the address, or every real server of the service that answers there.
func here(w *hostview.World, e flow.Explanation) bool {
	is := func(a netip.Addr) bool { _, inUse := w.Holder(a); return inUse || w.Own(a) }
	b := balance(e)
	if b == nil {
		return is(e.Destination.Addr())
	}
	return !slices.ContainsFunc(b.Candidates, func(c flow.Candidate) bool { return !is(c.At.Addr()) })
}

// balance is the first choice of a real server on the way, nil for none.
func balance(e flow.Explanation) *flow.Balance {
	for _, h := range e.Hops {
		if h.Balance != nil {
			return h.Balance
		}
	}
	return nil
}

// subLink explains the flow anew with the port that the probe has, by which a
// service may choose another real server; and with each real server that it may
// choose, where it cannot be told which.
func (r *run) subLink() error {
	b := balance(*r.e)
	if b == nil {
		return nil
	}
	f := r.e.Asked
	if r.knock != nil {
		f.FromPort = r.knock.Local.Port()
		e, err := flow.Explain(r.world, f)
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
		e, err := flow.Explain(r.world, f)
		if err != nil {
			return err
		}
		if other := balance(e); other != nil && slices.ContainsFunc(other.Candidates, func(o flow.Candidate) bool { return o.Taken && o.At == c.At }) {
			r.others = append(r.others, e)
		}
	}
	return nil
}

// judgeAll compares what was seen with the explanation, or where that does not
// agree with those of other real servers: the first that does is the one.
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
