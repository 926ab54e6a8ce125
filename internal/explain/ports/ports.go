// Package ports tells of every port of a host that anybody may reach: whose it
// is, by which way it leads there, and who gets through. It is pure: it reads the
// facts that package facts has gathered, and changes nothing.
//
// Theory of operation. A port has an owner in one or more places: a NAT rule, a
// lead of our eBPF programs, a virtual service, a socket. One publish is often several of them at
// once: Docker makes a NAT rule and holds the port by a socket of docker-proxy,
// or by its own; our proxy holds the ports that nat and ebpf lead. First the
// rules and leads become ports, then each socket joins the one that it stands
// behind, or becomes a port itself; at last the families and neighbouring ports
// that have all in common become one line. Who gets through is found by
// following a packet from each place through the rules (package kernel/rules).
package ports

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/daemon"
	"fairlead/internal/explain/facts"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
)

// Mode is how packets for a port get to whoever answers.
type Mode string

// The ways: a socket of the host; ours by their names; and those of others.
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

// Port is a port, or a range of them that have everything in common.
type Port struct {
	Proto model.Proto `json:"proto"`
	// Addresses are the host's; an unspecified one stands for all of its family.
	Addresses []netip.Addr    `json:"addresses"`
	Ports     model.PortRange `json:"ports"`
	// Process has the socket open: of several, the first.
	Process *Process `json:"process,omitempty"`
	// Container is whose port it is, or whose the process is.
	Container *Container `json:"container,omitempty"`
	// Sandbox is the attachment of ours that the port leads to.
	Sandbox string `json:"sandbox,omitempty"`
	// Ended says that the sandbox has ended: nobody answers at the port.
	Ended   bool   `json:"ended,omitempty"`
	Network string `json:"network,omitempty"`
	// Service is the virtual service that answers there.
	Service *Service `json:"service,omitempty"`
	// Modes has docker-proxy beside docker nat where both lead there.
	Modes []Mode `json:"modes"`
	// To is where packets are led, and ToPorts the ports there, or those that a
	// workload has asked for.
	To      netip.Addr      `json:"to,omitzero"`
	ToPorts model.PortRange `json:"toPorts,omitzero"`
	// Reach is for the first of Addresses, and for all of them unless Reach6 says
	// that IPv6 differs.
	Reach  Reach  `json:"reach"`
	Reach6 *Reach `json:"reach6,omitempty"`
	// Rule is the NAT rule that leads there, of others.
	Rule string `json:"rule,omitempty"`

	// bound says that a socket answers by itself, and not only holds the port.
	bound bool
}

// Process is a process of the host.
type Process struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

// Container is as its engine knows it; without an engine only the id is known.
type Container struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// Reach says from where the port is reached.
type Reach struct {
	// Loopback is 127.0.0.1 or ::1, Host the host's own address from the host
	// itself, Containers any bridge of this host, LAN anybody by an uplink.
	Loopback   rules.Answer `json:"loopback"`
	Host       rules.Answer `json:"host"`
	Containers rules.Answer `json:"containers"`
	LAN        rules.Answer `json:"lan"`
	Firewall   Firewall     `json:"firewall"`
	// Decided is the rule that lets the LAN in or keeps it out.
	Decided string `json:"decided,omitempty"`

	// asked are the places that the host has in the address family.
	asked places
}

// places says for each place of a Reach whether packets of an address family can
// come from there at all: there may be no link with such an address.
type places struct{ loopback, host, containers, lan bool }

// Reaches returns the reach of each address family.
func (p Port) Reaches() []Reach {
	if p.Reach6 != nil {
		return []Reach{p.Reach, *p.Reach6}
	}
	return []Reach{p.Reach}
}

// Firewall is what the rules for the host's own ports (hook input) do about the
// LAN.
type Firewall string

// The firewall's doings.
const (
	// Open: there is none, or none that filters.
	Open Firewall = "none"
	// Lets: a rule or policy accepts.
	Lets Firewall = "lets in"
	// Drops: nobody gets in.
	Drops Firewall = "drops"
	// Perhaps: it depends on who comes, or on what we do not understand.
	Perhaps Firewall = "depends"
	// Bypassed: it would drop, and packets do not meet it.
	Bypassed Firewall = "bypassed"
)

// List returns all ports, those of the daemon's attachments and virtual services
// by name.
func List(f facts.Facts, known []daemon.View, services []daemon.ServiceView) []Port {
	b := builder{Facts: f, known: known, index: rules.NewIndex(f.Rules)}
	b.translations()
	b.mappings()
	names := map[model.Frontend]string{}
	for _, s := range services {
		for _, at := range s.Frontends() {
			names[at] = s.Name
		}
	}
	b.services(names)
	b.listeners()
	for i := range b.ports {
		if b.ports[i].Service != nil {
			b.ports[i].Reach = b.reachService(b.ports[i])
			continue
		}
		b.own(&b.ports[i])
		b.ports[i].Reach = b.reach(b.ports[i])
		b.ports[i].limit()
	}
	return join(b.ports)
}

// builder gathers ports, one an address and range.
type builder struct {
	facts.Facts
	known []daemon.View
	ports []Port
	index rules.Index
}

// join makes one port of those that are neighbours or differ by the family.
func join(all []Port) []Port {
	all = merge(all, Port.before, func(p *Port, o Port) { p.Ports.Last, p.ToPorts.Last = o.Ports.Last, o.ToPorts.Last },
		func(p Port) int { return int(p.Ports.Last) + 1 })
	all = merge(all, Port.otherFamily, (*Port).take, func(p Port) int { return int(p.Ports.First) })
	slices.SortStableFunc(all, compare)
	return all
}

// merge has each port taken by the first before it that it belongs to; what
// belongs to a port begins at next.
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

// otherFamily reports whether p is the same publish, or another socket of the
// same program, at the other family's corresponding address.
func (p Port) otherFamily(o Port) bool {
	if p.Proto != o.Proto || p.Ports != o.Ports || !corresponding(p.Addresses, o.Addresses) || p.ToPorts != o.ToPorts {
		return false
	}
	switch {
	case p.Container != nil && o.Container != nil:
		return *p.Container == *o.Container
	case p.Sandbox != "" || o.Sandbox != "":
		return p.Sandbox == o.Sandbox
	}
	return p.Rule == "" && o.Rule == "" && p.Process != nil && o.Process != nil && *p.Process == *o.Process && p.Container == nil && o.Container == nil
}

// corresponding reports whether both are the unspecified addresses, or the
// loopback ones, of different families.
func corresponding(a, b []netip.Addr) bool {
	if len(a) != 1 || len(b) != 1 || a[0].Is4() == b[0].Is4() {
		return false
	}
	return a[0].IsUnspecified() && b[0].IsUnspecified() || a[0].IsLoopback() && b[0].IsLoopback()
}

// take adds what is known of the other family.
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

// complete takes from the other address family what the host does not have in
// this one: that is no difference between the two.
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

// before reports whether o's ports follow p's and lead to where p's go on.
func (p Port) before(o Port) bool {
	same := p.Proto == o.Proto && int(p.Ports.Last)+1 == int(o.Ports.First) && slices.Equal(p.Addresses, o.Addresses) &&
		p.Sandbox == o.Sandbox && p.Network == o.Network && slices.Equal(p.Modes, o.Modes) && p.To == o.To && p.Service.equal(o.Service) && sameReach(p.Reach, o.Reach) && p.Reach.asked == o.Reach.asked
	if !same || (p.Container == nil) != (o.Container == nil) || p.Container != nil && *p.Container != *o.Container {
		return false
	}
	if p.Service != nil {
		return true
	}
	if p.ToPorts != (model.PortRange{}) {
		return int(p.ToPorts.Last)+1 == int(o.ToPorts.First) // the sockets behind it may be of many proxies
	}
	return (p.Process == nil) == (o.Process == nil) && (p.Process == nil || *p.Process == *o.Process)
}

// sameReach compares all but the rule that decided.
func sameReach(a, b Reach) bool {
	a.Decided, b.Decided = "", ""
	a.asked, b.asked = places{}, places{}
	return a == b
}
