// Package flow explains a flow: each hop that its first packet takes, and the
// route, rule, program or socket that sends it there. It asks a World for facts
// and decides from them alone; it changes nothing. A probe that confirms the
// hops by real packets is in package flow/probe.
//
// Theory of operation. The packet is walked as the kernel walks it, from the
// socket or the link where the flow begins: connect() hooks, routing, NAT and
// filters of each hook, the other end of each link, bridges, our eBPF programs
// where a link has them, until a socket takes it, something drops it, or it
// leaves this host. A proxy that takes it begins a walk of its own.
//
//	connect() ─ route ─ output ─ postrouting ─ link ┐
//	┌ eBPF ─ prerouting ─ route ─┬─ input ─ socket  │
//	└────────────────────────────┤                  │
//	            link ─ postrouting ─ forward   ◀────┘
//
// The answer is walked back in the same way: a flow whose answer is lost is not
// delivered. Address resolution (ARP, Neighbor Discovery) passes the same filters
// as the packet.
//
// Limits: XDP programs, tc filters and tcx programs of others, policy routing by
// ports or users, VLAN filtering, and statements of rules that are not understood
// are not followed. Each of them makes the verdict uncertain, with a caveat.
package flow

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"fairlead/internal/model"
)

// Flow is the flow that is asked about, as it was typed.
type Flow struct {
	// From is where it begins: an address, a sandbox, or host and localhost.
	From string
	// FromPort is the client's port, if that was said: it decides by which real
	// server a hashed service answers.
	FromPort uint16
	// To is an address or a sandbox; empty for the host itself.
	To    string
	Port  uint16
	Proto model.Proto
	// Server is the real server that a virtual service is taken to choose, where
	// it may choose it. Nobody types that.
	Server netip.AddrPort
}

// String writes the flow as it can be typed.
func (f Flow) String() string {
	to := f.To
	if a, err := netip.ParseAddr(to); err == nil && a.Is6() {
		to = "[" + to + "]"
	}
	from := f.From
	if a, err := netip.ParseAddr(from); err == nil && f.FromPort != 0 {
		from = netip.AddrPortFrom(a, f.FromPort).String()
	}
	text := fmt.Sprintf("%s -> %s:%d", from, to, f.Port)
	if f.Proto == model.UDP {
		text += "/udp"
	}
	return text
}

// Parse reads `FROM -> TO:PORT[/tcp|/udp]`, in one word or several; in place of
// the arrow, which a shell would take for a redirection, `to` or nothing will
// do. FROM may be an address with the client's port, too.
func Parse(words []string) (Flow, error) {
	text := strings.NewReplacer("->", " ", "→", " ").Replace(strings.Join(words, " "))
	fields := strings.Fields(text)
	if len(fields) == 3 && fields[1] == "to" {
		fields = []string{fields[0], fields[2]}
	}
	f := Flow{Proto: model.TCP}
	if len(fields) != 2 {
		return f, fmt.Errorf("flow %q: want FROM to TO:PORT, e.g. web to db:5432", strings.Join(words, " "))
	}
	f.From = strings.Trim(fields[0], "[]")
	if at, err := netip.ParseAddrPort(fields[0]); err == nil {
		f.From, f.FromPort = at.Addr().String(), at.Port()
	}
	to := fields[1]
	if before, proto, ok := strings.Cut(to, "/"); ok && !strings.Contains(proto, "/") {
		if f.Proto = model.Proto(proto); f.Proto != model.TCP && f.Proto != model.UDP {
			return f, fmt.Errorf("flow %q: protocol %q: want tcp or udp", text, proto)
		}
		to = before
	}
	host, port, err := splitPort(to)
	if err != nil {
		return f, fmt.Errorf("flow %q: %w", strings.TrimSpace(text), err)
	}
	f.To, f.Port = host, port
	return f, nil
}

// splitPort splits at the last colon; an IPv6 address is in brackets.
func splitPort(text string) (host string, port uint16, err error) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return "", 0, errors.New("want a port after a colon, e.g. :8080 or db:5432")
	}
	n, err := strconv.ParseUint(text[i+1:], 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("port %q: want a number from 1 to 65535", text[i+1:])
	}
	host = text[:i]
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.Contains(bare, ":") && bare == host && strings.Count(host, ":") > 1 {
		return "", 0, fmt.Errorf("%s: put an IPv6 address into brackets, e.g. [2001:db8::1]:80", text)
	}
	return bare, uint16(n), nil
}

// Kind says what a hop is.
type Kind string

// The kinds of hops.
const (
	Begin    Kind = "begin"   // where the flow begins
	Connect  Kind = "connect" // a hook at connect() or sendmsg()
	Route    Kind = "route"   // a routing decision
	Link     Kind = "link"    // over a link into another namespace
	Bridge   Kind = "bridge"  // through a bridge
	NAT      Kind = "nat"     // a rule that changes an address
	Filter   Kind = "filter"  // rules that let it pass, or not
	EBPF     Kind = "ebpf"    // an eBPF program of ours
	Proxy    Kind = "proxy"   // a process that opens a connection of its own
	Delivery Kind = "socket"  // the socket at the end
	Answer   Kind = "answer"  // the way back
)

// Outcome is how a flow ends.
type Outcome string

// The outcomes.
const (
	Delivered Outcome = "delivered" // a socket takes it
	Refused   Outcome = "refused"   // nobody listens
	Dropped   Outcome = "dropped"   // a rule drops it
	NoRoute   Outcome = "no-route"  // nothing leads there
	Leaves    Outcome = "leaves"    // it leaves this host
	Unknown   Outcome = "unknown"   // it goes where we cannot look
)

// Hop is one thing that happens to the packet.
type Hop struct {
	// Number counts from 1.
	Number int  `json:"hop"`
	Kind   Kind `json:"kind"`
	// Where is the sandbox, or host; Link the interface there.
	Where string `json:"where"`
	Link  string `json:"link,omitempty"`
	What  string `json:"what"`
	// By is the route, rule, map element or program that decides, as an expert
	// would type it.
	By string `json:"by,omitempty"`
	// Program is the eBPF program that decides, and where it is attached.
	Program string `json:"program,omitempty"`
	// Why says what the way promises that decides here.
	Why string `json:"why,omitempty"`
	// Balance is the choice of a real server, where a virtual service answers.
	Balance *Balance `json:"balance,omitempty"`
	// Source and Destination are the packet's after the hop.
	Source      netip.AddrPort `json:"source,omitzero"`
	Destination netip.AddrPort `json:"destination,omitzero"`
	// Uncertain says that a rule holds something that is not understood.
	Uncertain bool `json:"uncertain,omitempty"`
	// Seen is what a probe has seen of the hop: seen, not seen, or empty where
	// nothing can be seen.
	Seen string `json:"seen,omitempty"`
	// Clue is by what a probe sees it.
	Clue Clue `json:"-"`
}

// Clue is what a real packet leaves at a hop.
type Clue struct {
	// Netns is the path of the namespace, empty for the host's.
	Netns string
	// Hook is the netfilter hook that the packet passes; empty for none.
	Hook string
	// Link is the interface that it comes in by there, or goes out by at
	// postrouting; empty for any.
	Link string
	// Translated says that an eBPF program remembers the flow, Turned that the socket's
	// real peer is Destination; Lead is the key of the lead that has counted it.
	Translated, Turned bool
	Lead               string
	// Taken says that a socket there is connected.
	Taken bool
}

// Process is who takes the packet at the end.
type Process struct {
	PID       int    `json:"pid"`
	Command   string `json:"command"`
	Container string `json:"container,omitempty"`
	// Where is the sandbox, or host.
	Where string `json:"where"`
}

// Explanation is the whole way.
type Explanation struct {
	Flow        string         `json:"flow"`
	Proto       model.Proto    `json:"proto"`
	Source      netip.Addr     `json:"source"`
	Destination netip.AddrPort `json:"destination"`
	Hops        []Hop          `json:"hops"`
	Outcome     Outcome        `json:"outcome"`
	// Verdict is the outcome in a sentence.
	Verdict string `json:"verdict"`
	// Uncertain says that the verdict is not certain: some hop is not, there are
	// caveats, or something could not be read.
	Uncertain bool     `json:"uncertain,omitempty"`
	Process   *Process `json:"process,omitempty"`
	// Caveats say why the verdict is not certain.
	Caveats []string `json:"caveats,omitempty"`
	// Notes are what could not be looked at.
	Notes []string `json:"notes,omitempty"`
	// Probe is what a probe has found, if one was sent.
	Probe *Probe `json:"probe,omitempty"`

	// Asked is the flow that was explained.
	Asked Flow `json:"-"`
	// Origin is where a probe is sent from: the path of a namespace, empty for
	// the host's. Outside says that the flow begins at another machine.
	Origin  string `json:"-"`
	Outside bool   `json:"-"`
}

// Probe is what was sent and what came of it.
type Probe struct {
	// Sent says what was sent from where, or why nothing was.
	Sent string `json:"sent"`
	// Result is answered, refused, unanswered, unreachable, or not sent.
	Result string `json:"result"`
	// Dropped names the rule that a trace has seen drop the packet.
	Dropped string `json:"dropped,omitempty"`
	// Agrees says whether it ended as explained.
	Agrees bool `json:"agrees"`
}
