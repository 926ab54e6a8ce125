// Package flow explains a flow: each hop that its first packet passes, and the
// route, rule, program or socket that decides at the hop. It asks a World for
// facts and uses nothing else; it changes nothing. Package flow/probe confirms
// the hops with a real packet.
//
// Theory of operation. The package follows the packet as the kernel would, from
// the socket or the link where the flow begins: connect() hooks, routing, NAT and
// filters of each hook, the other end of each link, bridges, and Fairlead's eBPF
// programs where a link has them. It stops when a socket accepts the packet,
// something drops it, or it leaves this host. A proxy that accepts it opens
// another connection, which is followed in the same way.
//
//	connect() ─ route ─ output ─ postrouting ─ link ┐
//	┌ eBPF ─ prerouting ─ route ─┬─ input ─ socket  │
//	└────────────────────────────┤                  │
//	            link ─ postrouting ─ forward   ◀────┘
//
// The answer is followed back in the same way: a flow whose answer is lost is not
// delivered. Address resolution (ARP, Neighbor Discovery) passes the same filters
// as the packet.
//
// The walker goes from place to place. Its parts decide there: the router,
// netfilter, the wire (links and bridges), the balancer of virtual services, and
// the eBPF data path. Each part has only the facts that it needs; all of them
// write to one report.
//
// Limits: the package does not follow XDP programs, tc filters, tcx programs and
// programs at cgroups of other software, policy routing by ports or users, VLAN
// filtering, and unknown statements of rules. Each of them makes the verdict uncertain, with a
// caveat.
package flow

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// Flow is the flow to explain, as the user typed it.
type Flow struct {
	// From is where the flow begins: an address, a sandbox, host or localhost.
	From string
	// FromPort is the client's port; 0 if unknown. It decides which real server a
	// service with a hashing scheduler chooses.
	FromPort uint16
	// To is an address or a sandbox; empty for the host itself.
	To    string
	Port  uint16
	Proto model.Proto
	// Server is the real server that a virtual service is assumed to choose, if it
	// may choose it. Users cannot set it.
	Server netip.AddrPort
}

// String returns the flow in the syntax that Parse reads.
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

// Parse reads `FROM -> TO:PORT[/tcp|/udp]`, in one word or several. A shell takes
// the arrow for a redirection, so `to` or nothing may replace it. FROM may also
// be an address with the client's port.
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

// Kind is the kind of a hop.
type Kind string

// The kinds of hops.
const (
	Begin    Kind = "begin"   // where the flow begins
	Connect  Kind = "connect" // a hook at connect() or sendmsg()
	Route    Kind = "route"   // a routing decision
	Link     Kind = "link"    // over a link into another namespace
	Bridge   Kind = "bridge"  // through a bridge
	NAT      Kind = "nat"     // a rule that changes an address
	Filter   Kind = "filter"  // rules that accept or drop the packet
	EBPF     Kind = "ebpf"    // an eBPF program of Fairlead
	Proxy    Kind = "proxy"   // a process that opens another connection
	Delivery Kind = "socket"  // the socket at the end
	Answer   Kind = "answer"  // a difference on the path of the answer
)

// Outcome is how a flow ends.
type Outcome string

// The outcomes.
const (
	Delivered Outcome = "delivered" // a socket accepts it
	Refused   Outcome = "refused"   // no socket listens
	Dropped   Outcome = "dropped"   // a rule drops it
	NoRoute   Outcome = "no-route"  // no route, or no host with the address
	Leaves    Outcome = "leaves"    // it leaves this host
	Unknown   Outcome = "unknown"   // its further path cannot be followed
)

// Hop is one thing that happens to the packet.
type Hop struct {
	// Number counts from 1.
	Number int  `json:"hop"`
	Kind   Kind `json:"kind"`
	// Where is the sandbox, or host. Link is the interface there.
	Where string `json:"where"`
	Link  string `json:"link,omitempty"`
	What  string `json:"what"`
	// By is the route, rule, map element or program that decides, in the syntax of
	// the tool that shows it.
	By string `json:"by,omitempty"`
	// Program is the eBPF program that decides, and where it is attached.
	Program string `json:"program,omitempty"`
	// Why is what the publish mode promises, or another reason.
	Why string `json:"why,omitempty"`
	// Balance is the choice of a real server, if a virtual service answers.
	Balance *Balance `json:"balance,omitempty"`
	// Source and Destination are the packet's addresses after the hop.
	Source      netip.AddrPort `json:"source,omitzero"`
	Destination netip.AddrPort `json:"destination,omitzero"`
	// Uncertain is true if a rule has a condition that Fairlead cannot evaluate.
	Uncertain bool `json:"uncertain,omitempty"`
	// Seen is the result of a probe at the hop: "seen", "not seen", or empty if a
	// probe cannot see the hop.
	Seen string `json:"seen,omitempty"`
	// Clue is how a probe sees the hop.
	Clue Clue `json:"-"`
}

// Clue is what a real packet leaves at a hop.
type Clue struct {
	// Netns is the path of the namespace, empty for the host's.
	Netns string
	// Hook is the netfilter hook that the packet passes; empty for none.
	Hook string
	// Link is the interface on which the packet arrives, or by which it leaves at
	// postrouting; empty for any.
	Link string
	// Translated is true if an eBPF program stores the flow. Redirected is true if
	// the socket's real peer is Destination. Mapping is the key of the port mapping
	// that counts the flow.
	Translated, Redirected bool
	Mapping                string
	// Connected is true if a socket at the hop is connected.
	Connected bool
}

// Process is the process that accepts the packet at the end.
type Process struct {
	PID       int    `json:"pid"`
	Command   string `json:"command"`
	Container string `json:"container,omitempty"`
	// Where is the sandbox, or host.
	Where string `json:"where"`
}

// Explanation is the whole path of a flow.
type Explanation struct {
	Flow        string         `json:"flow"`
	Proto       model.Proto    `json:"proto"`
	Source      netip.Addr     `json:"source"`
	Destination netip.AddrPort `json:"destination"`
	Hops        []Hop          `json:"hops"`
	Outcome     Outcome        `json:"outcome"`
	// Verdict is the outcome as a sentence.
	Verdict string `json:"verdict"`
	// Uncertain is true if the verdict is not certain: a hop is uncertain, there
	// are caveats, or something could not be read.
	Uncertain bool     `json:"uncertain,omitempty"`
	Process   *Process `json:"process,omitempty"`
	// Caveats are the reasons why the verdict is not certain.
	Caveats []string `json:"caveats,omitempty"`
	// Notes are what could not be read or followed.
	Notes []string `json:"notes,omitempty"`
	// Probe is the result of a probe; nil if none was sent.
	Probe *Probe `json:"probe,omitempty"`

	// Further is the path on the next host of a cluster, as that host reports it; nil if it was not asked.
	Further *api.FlowPart `json:"further,omitempty"`

	// Asked is the flow that was explained.
	Asked Flow `json:"-"`
	// Origin is where a probe is sent from: the path of a namespace, empty for
	// the host's. Outside is true if the flow begins at another machine.
	Origin  string `json:"-"`
	Outside bool   `json:"-"`
}

// Probe is the result of a probe.
type Probe struct {
	// Sent is what was sent, and from where; or why nothing was sent.
	Sent string `json:"sent"`
	// Result is answered, refused, unanswered, unreachable, or not sent.
	Result string `json:"result"`
	// Dropped names the rule that dropped the packet, from a trace.
	Dropped string `json:"dropped,omitempty"`
	// Agrees is true if the packet ended as explained.
	Agrees bool `json:"agrees"`
}
