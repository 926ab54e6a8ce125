package flow

import (
	"slices"

	"fairlead/internal/kernel/rules"
)

// stage is a place on a frame's path where filters may drop it: a link, or a hook
// of a bridge.
type stage struct {
	netns string
	// hook is ingress or egress of the link, or a hook of the bridge.
	hook, link string
	// in and out are the bridge's ports; bridge is its name, for br_netfilter.
	bridge, in, out string
}

// allows follows a message of address resolution through hooks. It returns the message
// with the marks that rules set, and reports whether the rules accept it. It ends the walk
// if they do not. ARP does not pass the hooks before and after routing.
func (n *netfilter) allows(netns string, hooks []string, ask rules.Packet, p packet) (rules.Packet, bool) {
	rs, ok := n.rules(netns)
	for _, hook := range hooks {
		if ask.To.Addr().Is4() && (hook == "prerouting" || hook == "postrouting") {
			continue
		}
		v := rs.Filter(hook, n.withSource(netns, ask))
		if ok = ok && n.judged(v, netns, firstOf(ask.In, ask.Out), hook, ask, p); !ok {
			return ask, false
		}
		ask = v.Packet
	}
	return ask, ok
}

// crosses follows a message of address resolution through stages.
func (n *netfilter) crosses(netns string, stages []stage, ask rules.Packet, p packet) (rules.Packet, bool) {
	for _, s := range stages {
		if s.netns != netns { // the kernel clears the mark
			netns, ask.Mark = s.netns, rules.Bits{}
		}
		after, ok := n.stagePasses(s, ask, p)
		if !ok {
			return ask, false
		}
		ask.Mark = after.Mark
	}
	return ask, true
}

// sent and received are the hooks that a packet of a namespace's own passes.
var sent, received = []string{"output", "postrouting"}, []string{"prerouting", "input"}

// judged records the verdict for a frame, and reports whether the frame passes.
func (n *netfilter) judged(v rules.Verdict, netns, link, hook string, frame rules.Packet, p packet) bool {
	by := ruleText(v.By)
	if v.Policy {
		by = policyText(v.By)
	}
	lost := v.Action == rules.Drop || v.Action == rules.Reject
	what, verdict := "dropped", "dropped at "+hook+" of "+link+" in "+n.name(netns)
	if frame.Neighbour != rules.NoNeighbour {
		name := map[bool]string{true: "ARP", false: "Neighbor Discovery"}[frame.To.Addr().Is4()]
		what, verdict = name+" is dropped, so the address cannot be resolved", name+" is "+verdict
	}
	switch {
	case lost && v.Certain && n.renews:
		n.doubt("%s: %s: packets are lost after the entry of the neighbour has expired", verdict, by)
		return false
	case lost && v.Certain:
		n.hop(p, Hop{Kind: Filter, Where: n.name(netns), Link: link, What: hook + ": " + what, By: by})
		n.end(Dropped, "%s: %s", verdict, by)
		return false
	case !v.Certain:
		n.doubt("rules at %s of %s in %s have conditions that Fairlead cannot evaluate: %s", hook, link, n.name(netns),
			doubtful(v))
	}
	return true
}

// stagePasses reports whether a frame passes the filters of a stage, and returns
// the frame as the filters changed it.
func (n *netfilter) stagePasses(s stage, frame rules.Packet, p packet) (rules.Packet, bool) {
	rs, ok := n.rules(s.netns)
	if !ok {
		return frame, false
	}
	if s.hook == bridgedIP {
		return n.discovers(s, frame, p)
	}
	if s.bridge != "" {
		frame.In, frame.Out = s.in, s.out
		v := rs.Frame(s.hook, frame)
		return v.Packet, n.judged(v, s.netns, firstOf(s.in, s.out), "the bridge's "+s.hook, frame, p)
	}
	all, err := n.filters.Foreign(s.netns)
	if n.fail(err) {
		return frame, false
	}
	for _, f := range all {
		if f.Link == s.link && f.Egress == (s.hook == "egress") {
			n.doubt("%s at %s of %s is not followed: it may drop, change or redirect packets", f.What, s.link,
				n.name(s.netns))
		}
	}
	frame.In = map[bool]string{true: s.link}[s.hook == "ingress"]
	frame.Out = map[bool]string{true: s.link}[s.hook == "egress"]
	v := rs.Device(s.hook, s.link, frame)
	return v.Packet, n.judged(v, s.netns, s.link, s.hook, frame, p)
}

// bridgedIP stands for the IP hooks that a bridge calls for the packets that it forwards.
const bridgedIP = "bridged"

// discovers follows a message of Neighbor Discovery through the IP hooks that a bridge calls.
// Other packets pass them in bridgeFilter.
func (n *netfilter) discovers(s stage, frame rules.Packet, p packet) (rules.Packet, bool) {
	if frame.Neighbour == rules.NoNeighbour || frame.To.Addr().Is4() {
		return frame, true
	}
	for _, at := range []struct{ hook, in, out string }{{"prerouting", s.bridge, ""}, {"forward", s.bridge, s.bridge},
		{"postrouting", "", s.bridge}} {
		frame.In, frame.Out = at.in, at.out
		after, ok := n.allows(s.netns, []string{at.hook}, frame, p)
		if !ok {
			return frame, false
		}
		frame.Mark = after.Mark
	}
	return frame, true
}

// reversed returns the stages that the answer passes.
func reversed(stages []stage) []stage {
	var back []stage
	swap := map[string]string{"ingress": "egress", "egress": "ingress", "input": "output", "output": "input",
		"prerouting": "postrouting", "postrouting": "prerouting", "forward": "forward", bridgedIP: bridgedIP}
	for _, s := range slices.Backward(stages) {
		s.hook, s.in, s.out = swap[s.hook], s.out, s.in
		back = append(back, s)
	}
	return back
}
