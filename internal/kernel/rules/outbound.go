package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/model"
)

// Path is the way of the packets that sandboxes of a network send to hosts outside, and of the
// answers.
type Path struct {
	// Senders are the network's addresses.
	Senders netip.Prefix
	// Router is the link whose packets the host routes, and Ports are the links of the
	// sandboxes before it.
	Router string
	Ports  []string
	// Uplinks are the links via which the packets may leave.
	Uplinks []string
}

// Reason is why the connections on a path must not bypass the rules of the host.
type Reason struct {
	// Text is empty if there is no reason.
	Text string
	// Until is when the reason may be another one although no rule has changed: when the first
	// element expires of a set that rules look up. Zero means never.
	Until time.Time
}

// Decides returns which rule would decide, or may decide, about a TCP or UDP packet on the
// path, to or from any host outside, or about an ICMP error about one: it drops, rejects,
// translates or changes the packet, may choose another route for it, or does something that is
// not followed. There is no reason if none would. Rules of tables whose name begins with own do
// not count.
func (rs Ruleset) Decides(path Path, own string) Reason {
	t := trip{all: rs.decisive(own), path: path}
	t.onLinks = t.all.onLinks()
	marks := Bits{} // of the connections, at the begin
	for {
		after := marks
		for _, t.up = range path.Uplinks {
			for _, p := range path.packets() {
				p.CtMark = marks
				for _, follow := range []func(*trip){(*trip).leave, (*trip).answer} {
					t.packet = p
					follow(&t)
					after = after.either(t.packet.CtMark)
				}
			}
		}
		if t.cause != "" || after == marks {
			return Reason{t.cause, t.until}
		}
		marks.Unknown = allBits // rules set them: each packet may have any mark
	}
}

// decisive returns the rules of tables whose name does not begin with own. Rules that
// change packets have an action.
func (rs Ruleset) decisive(own string) (all Ruleset) {
	for _, c := range rs {
		if _, table, _ := strings.Cut(c.Table, " "); strings.HasPrefix(table, own) {
			continue
		}
		for i, r := range c.Rules {
			if r.Action == None && r.Alters != "" {
				c.Rules = slices.Clone(c.Rules)
				c.Rules[i].Action = Other
			}
		}
		all = append(all, c)
	}
	return all
}

// onLinks returns the chains of the tables that have a chain at a hook of a link or bridge.
func (rs Ruleset) onLinks() Ruleset {
	tables := map[string]bool{}
	for _, c := range rs {
		tables[c.Table] = tables[c.Table] || c.Hook == "ingress" || c.Hook == "egress" || c.Family() == "bridge"
	}
	return slices.DeleteFunc(slices.Clone(rs), func(c Chain) bool { return !tables[c.Table] })
}

// packets returns the packets of which rules may decide about one and not about another: the
// first of a connection, a later one, and ICMP errors.
func (path Path) packets() (all []Packet) {
	for _, proto := range []model.Proto{model.TCP, model.UDP} {
		first := Packet{Proto: proto, Senders: path.Senders, AnyTo: true, Behind: true,
			To: netip.AddrPortFrom(path.Senders.Masked().Addr(), 0)}
		later := first
		later.Established, later.SourceTranslated = true, true
		all = append(all, first, later)
		for _, kind := range []byte{unreachable, timeExceeded, parameterProblem} {
			later.ICMPError = kind
			all = append(all, later)
		}
	}
	return all
}

// trip follows one packet through hooks, one after the other.
type trip struct {
	// all are the rules, and onLinks those that include all hooks of links and bridges.
	all, onLinks Ruleset
	path         Path
	up           string
	packet       Packet
	// cause describes the first rule that decides, and marking the last one that sets the mark.
	cause, marking string
	// until is when the first element expires that may change the cause; zero if none does.
	until time.Time
}

// pass continues with a verdict.
func (t *trip) pass(v Verdict) {
	t.cause, t.until = cmp.Or(t.cause, v.decides()), Earlier(t.until, v.Until)
	for _, s := range v.Met {
		if slices.ContainsFunc(s.Rule.Assigns, func(a Assign) bool { return a.To == Mark }) {
			t.marking = Verdict{By: s}.Cause() + " sets the mark, which can choose a route"
		}
	}
	t.packet = v.Packet
}

// route decides if the packet has a mark before its route is looked up, or is not tracked, and
// so not masqueraded.
func (t *trip) route() {
	switch {
	case t.packet.Mark != Bits{}:
		t.cause = cmp.Or(t.cause, t.marking)
	case t.packet.NoTrack:
		t.cause = cmp.Or(t.cause, "a rule has the effect "+string(NoTrack))
	}
}

// leave follows a packet from the sandboxes' links to the uplink.
func (t *trip) leave() {
	t.onPorts(func(t *trip, port string) {
		t.packet.In = port
		t.pass(t.onLinks.Device("ingress", port, t.packet))
		t.pass(t.onLinks.Frame("prerouting", t.packet))
		t.pass(t.onLinks.Frame("input", t.packet))
	})
	t.packet.In = t.path.Router
	t.pass(t.onLinks.Device("ingress", t.path.Router, t.packet))
	t.pass(t.all.Filter("prerouting", t.packet))
	t.route()
	isFirst := t.packet.state() == stateNew
	if isFirst {
		t.pass(t.all.Translate("prerouting", t.packet))
	}
	t.packet.Out = t.up
	t.pass(t.all.Filter("forward", t.packet))
	t.pass(t.all.Filter("postrouting", t.packet))
	t.pass(t.onLinks.Device("egress", t.up, t.packet))
	if t.packet.In = ""; isFirst {
		t.pass(t.all.Translate("postrouting", t.packet))
	}
}

// answer follows an answer from the uplink to the sandboxes' links. Before it is translated,
// its destination is an address of the host.
func (t *trip) answer() {
	t.packet.Reply, t.packet.In = true, t.up
	t.packet.Senders, t.packet.Local = netip.Prefix{}, true
	t.packet.Behind = len(t.path.Uplinks) == 1 // else the route back may leave on another one
	t.pass(t.onLinks.Device("ingress", t.up, t.packet))
	t.pass(t.all.Filter("prerouting", t.packet))
	t.route()
	t.packet.Senders, t.packet.Local = t.path.Senders, false
	t.packet.Out = t.path.Router
	t.pass(t.all.Filter("forward", t.packet))
	t.pass(t.all.Filter("postrouting", t.packet))
	t.packet.In = ""
	t.pass(t.onLinks.Device("egress", t.path.Router, t.packet))
	t.onPorts(func(t *trip, port string) {
		t.packet.Out = port
		t.pass(t.onLinks.Frame("output", t.packet))
		t.pass(t.onLinks.Frame("postrouting", t.packet))
		t.pass(t.onLinks.Device("egress", port, t.packet))
	})
}

// onPorts follows the packet at each of the sandboxes' links. Marks that it has only at some
// of them are unknown afterwards.
func (t *trip) onPorts(follow func(t *trip, port string)) {
	for _, port := range t.path.Ports {
		one := *t
		follow(&one, port)
		t.cause, t.marking, t.until = one.cause, one.marking, one.until
		t.packet.Mark = t.packet.Mark.either(one.packet.Mark)
		t.packet.CtMark = t.packet.CtMark.either(one.packet.CtMark)
	}
}

// decides describes the rule that makes the verdict more than an acceptance, or may do so.
func (v Verdict) decides() string {
	switch {
	case v.Action != Accept:
		return fmt.Sprintf("%s has the effect %s", v.Cause(), v.Action)
	case !v.Certain && len(v.Doubts) > 0:
		doubt := v.Doubts[0]
		return fmt.Sprintf("%s may have the effect %s", Verdict{By: doubt}.Cause(), cmp.Or(doubt.Rule.Alters,
			string(doubt.Rule.Action)))
	case !v.Certain:
		return "a rule that is not followed may decide"
	}
	return ""
}
