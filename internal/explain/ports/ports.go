// Package ports lists the ports of a host that clients may reach: the owner of each
// port, the mode in which it is published, and from where it is reachable. It reads
// the facts that package facts has gathered, and changes nothing.
//
// Theory of operation. A port exists in one or more places: a NAT rule, a port
// mapping of the eBPF data path, a virtual service, a socket. One publish often
// has several of them: Docker adds a NAT rule and reserves the port with a
// socket of docker-proxy or dockerd; Fairlead's proxy reserves the ports that
// are published via nat and ebpf. First, each rule and each port mapping becomes
// a port. Then each socket joins the port for which it reserves or proxies, or
// becomes a port itself. Finally, ports that differ only in the family, and
// adjacent ports with equal properties, become one line. Reachability is found
// by evaluating the rules for a packet from each place (package kernel/rules), and
// by following a flow from each place (package flow), which knows also routes,
// links, programs and settings. If both are certain and differ, nothing is certain.
package ports

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/explain/facts"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
)

// Mode is how packets for a port reach the process that answers.
type Mode string

// The modes: a socket of the host, Fairlead's publish modes, and the mechanisms
// of other programs.
const (
	Host        Mode = "host"
	Proxy       Mode = Mode(model.ViaProxy)
	NAT         Mode = Mode(model.ViaNAT)
	EBPF        Mode = Mode(model.ViaEBPF)
	Socket      Mode = Mode(model.ViaSocket)
	DockerProxy Mode = "docker-proxy"
	DockerNAT   Mode = "docker nat"
	OtherNAT    Mode = "other nat"
)

// Port is a port, or a range of ports with equal properties.
type Port struct {
	Proto model.Proto `json:"proto"`
	// Addresses are the host's; an unspecified one means all addresses of its
	// family.
	Addresses []netip.Addr    `json:"addresses"`
	Ports     model.PortRange `json:"ports"`
	// Process has the socket open; if there are several, the first one.
	Process *Process `json:"process,omitempty"`
	// Container is the container that the port reaches, or that the process is in.
	Container *Container `json:"container,omitempty"`
	// Sandbox is the name of the Fairlead attachment that the port reaches.
	Sandbox string `json:"sandbox,omitempty"`
	// Ended says that the sandbox has ended: no process answers at the port.
	Ended   bool   `json:"ended,omitempty"`
	Network string `json:"network,omitempty"`
	// Service is the virtual service that answers at the port.
	Service *Service `json:"service,omitempty"`
	// Modes are all mechanisms that serve the port, e.g. docker nat and
	// docker-proxy.
	Modes []Mode `json:"modes"`
	// To is the target address, and ToPorts are the target ports. For the mode
	// socket, ToPorts are the ports that the workload asked for.
	To      netip.Addr      `json:"to,omitzero"`
	ToPorts model.PortRange `json:"toPorts,omitzero"`
	// Reach is for the first of Addresses. It is also for the other ones, unless
	// Reach6 is set because IPv6 differs.
	Reach  Reach  `json:"reach"`
	Reach6 *Reach `json:"reach6,omitempty"`
	// Link is the interface to which the socket is bound: the port is reached only via it.
	Link string `json:"link,omitempty"`
	// Rule is the NAT rule of another program that translates the port.
	Rule string `json:"rule,omitempty"`

	// bound is true if a socket answers, and does not only reserve the port.
	bound bool
}

// accepts reports whether a socket at the port accepts packets that arrive on a link.
func (p Port) accepts(link string) bool { return p.bound && (p.Link == "" || p.Link == link) }

// Process is a process of the host.
type Process struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

// Container is a container as its engine knows it. If no engine answers, only the
// id is known.
type Container struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// Reach is from where the port is reachable.
type Reach struct {
	// Loopback is for 127.0.0.1 or ::1; Host for a process of the host that uses
	// the host's address; Containers for containers on any bridge of this host;
	// LAN for machines behind the uplink.
	Loopback   rules.Answer `json:"loopback"`
	Host       rules.Answer `json:"host"`
	Containers rules.Answer `json:"containers"`
	LAN        rules.Answer `json:"lan"`
	Firewall   Firewall     `json:"firewall"`
	// Decided is the rule that accepts or drops packets from the LAN.
	Decided string `json:"decided,omitempty"`

	// asked are the places from which packets of the address family can come.
	asked places
}

// places are the places of a Reach from which packets of an address family can
// come at all: a place needs a link with such an address.
type places struct{ loopback, host, containers, lan bool }

// Reaches returns the reach of each address family.
func (p Port) Reaches() []Reach {
	if p.Reach6 != nil {
		return []Reach{p.Reach, *p.Reach6}
	}
	return []Reach{p.Reach}
}

// Firewall is what the rules for the host's own ports (hook input) do with
// packets from the LAN.
type Firewall string

// The results of the firewall.
const (
	// Open: there is no firewall, or none that filters.
	Open Firewall = "none"
	// Lets: a rule or policy accepts the packets.
	Lets Firewall = "lets in"
	// Drops: the firewall drops the packets.
	Drops Firewall = "drops"
	// Perhaps: the result depends on the client, or on rules that Fairlead cannot
	// evaluate.
	Perhaps Firewall = "depends"
	// Unread: the rules could not be read.
	Unread Firewall = "unknown"
	// Bypassed: the firewall would drop the packets, but they do not pass it.
	Bypassed Firewall = "bypassed"
)

// List returns all ports. It names the ports of the daemon's attachments (known)
// and virtual services.
func List(f facts.Facts, known []api.View, services []api.ServiceView) []Port {
	return list(f, known, services, nil)
}

func list(f facts.Facts, known []api.View, services []api.ServiceView, ask Ask) []Port {
	b := builder{Facts: f, known: known, index: rules.NewIndex(f.Rules), ask: ask}
	b.translations()
	b.mappings()
	b.services(frontends(services))
	b.listeners()
	for i := range b.ports {
		if b.ports[i].Service != nil {
			b.ports[i].Reach = b.reachService(b.ports[i])
		} else {
			b.findOwner(&b.ports[i])
			b.ports[i].Reach = b.reach(b.ports[i])
			b.ports[i].limit()
		}
		if f.RulesUnread {
			b.ports[i].Reach.doubt()
			b.ports[i].Reach.Firewall = Unread
		}
	}
	return join(b.ports)
}

// builder gathers ports, one for each address and range.
type builder struct {
	facts.Facts
	known []api.View
	ports []Port
	index rules.Index
	// ask is nil if flows are not asked for.
	ask Ask
}

// join merges ports that are adjacent, and ports that differ only in the family.
func join(all []Port) []Port {
	all = merge(all, Port.before, func(p *Port, o Port) { p.Ports.Last, p.ToPorts.Last = o.Ports.Last, o.ToPorts.Last },
		func(p Port) int { return int(p.Ports.Last) + 1 })
	all = merge(all, Port.otherFamily, (*Port).take, func(p Port) int { return int(p.Ports.First) })
	slices.SortStableFunc(all, compare)
	return all
}

// merge merges each port, with take, into the first earlier port to which it
// belongs. A port that belongs to p begins at port number next(p).
func merge(all []Port, belongs func(Port, Port) bool, take func(*Port, Port), next func(Port) int) []Port {
	slices.SortStableFunc(all, compare)
	var out []Port
	at := map[int][]int{}
	for _, p := range all {
		candidates := at[int(p.Ports.First)]
		i := slices.IndexFunc(candidates, func(i int) bool { return belongs(out[i], p) })
		if i >= 0 {
			take(&out[candidates[i]], p)
			at[next(out[candidates[i]])] = append(at[next(out[candidates[i]])], candidates[i])
			continue
		}
		out = append(out, p)
		at[next(p)] = append(at[next(p)], len(out)-1)
	}
	return out
}

func compare(a, b Port) int {
	return cmp.Or(cmp.Compare(a.Ports.First, b.Ports.First), strings.Compare(string(a.Proto), string(b.Proto)),
		cmp.Compare(a.Ports.Last, b.Ports.Last), slices.CompareFunc(a.Addresses, b.Addresses, netip.Addr.Compare))
}

// otherFamily reports whether o is the same publish as p, or another socket of
// the same program, at the other family's corresponding address.
func (p Port) otherFamily(o Port) bool {
	if p.Proto != o.Proto || p.Ports != o.Ports || !corresponding(p.Addresses, o.Addresses) || p.ToPorts != o.ToPorts ||
		p.Link != o.Link {
		return false
	}
	switch {
	case p.Container != nil && o.Container != nil:
		return *p.Container == *o.Container
	case p.Sandbox != "" || o.Sandbox != "":
		return p.Sandbox == o.Sandbox
	}
	return p.Rule == "" && o.Rule == "" && p.Process != nil && o.Process != nil && *p.Process == *o.Process &&
		p.Container == nil && o.Container == nil
}

// corresponding reports whether a and b are the unspecified addresses, or the
// loopback addresses, of different families.
func corresponding(a, b []netip.Addr) bool {
	if len(a) != 1 || len(b) != 1 || a[0].Is4() == b[0].Is4() {
		return false
	}
	return a[0].IsUnspecified() && b[0].IsUnspecified() || a[0].IsLoopback() && b[0].IsLoopback()
}

// take merges o, the same port of the other family, into p.
func (p *Port) take(o Port) {
	p.Addresses = append(p.Addresses, o.Addresses...)
	for _, w := range o.Modes {
		if !slices.Contains(p.Modes, w) {
			p.Modes = append(p.Modes, w)
		}
	}
	if p.Process == nil {
		p.Process = o.Process
	}
	p.Reach.complete(o.Reach)
	if o.Reach.complete(p.Reach); !sameReach(p.Reach, o.Reach) {
		p.Reach6 = &o.Reach
	}
}

// complete copies from o, the other address family, the places that the host does
// not have in this family, so that they do not count as a difference.
func (r *Reach) complete(o Reach) {
	for _, place := range []struct {
		asked    bool
		is, from *rules.Answer
	}{
		{r.asked.loopback, &r.Loopback, &o.Loopback}, {r.asked.host, &r.Host, &o.Host},
		{r.asked.containers, &r.Containers, &o.Containers}, {r.asked.lan, &r.LAN, &o.LAN},
	} {
		if !place.asked {
			*place.is = *place.from
		}
	}
	if !r.asked.lan {
		r.Firewall, r.Decided = o.Firewall, o.Decided
	}
}

// before reports whether o's ports follow p's, with targets that follow p's
// targets and equal properties.
func (p Port) before(o Port) bool {
	same := p.Proto == o.Proto && int(p.Ports.Last)+1 == int(o.Ports.First) && slices.Equal(p.Addresses, o.Addresses) &&
		p.Sandbox == o.Sandbox && p.Network == o.Network && p.Link == o.Link && slices.Equal(p.Modes, o.Modes) &&
		p.To == o.To && p.Service.equal(o.Service) && sameReach(p.Reach, o.Reach) && p.Reach.asked == o.Reach.asked
	if !same || (p.Container == nil) != (o.Container == nil) || p.Container != nil && *p.Container != *o.Container {
		return false
	}
	if p.Service != nil {
		return true
	}
	if p.ToPorts != (model.PortRange{}) {
		return int(p.ToPorts.Last)+1 == int(o.ToPorts.First) // the sockets may belong to several proxies
	}
	return (p.Process == nil) == (o.Process == nil) && (p.Process == nil || *p.Process == *o.Process)
}

// sameReach compares everything except the rule that decided.
func sameReach(a, b Reach) bool {
	a.Decided, b.Decided = "", ""
	a.asked, b.asked = places{}, places{}
	return a == b
}
