package plan

import (
	"fmt"
	"net/netip"

	"fairlead/internal/escape"
	"fairlead/internal/model"
)

// Uplinks is our eBPF program at the ingress of every link of the host that
// is neither loopback, nor ours, nor a port of a bridge.
type Uplinks struct {
	Found
}

// Found is what was found of an object that is many: an object to be set has it
// empty.
type Found struct {
	// Partly says that some of it is there and some is not. To go back to that is
	// to leave it as it is, and never to take away what is there.
	Partly bool
}

// IsPartly reports whether the object was found in part.
func (f Found) IsPartly() bool { return f.Partly }

// Key implements Object.
func (Uplinks) Key() string { return "bpf uplinks" }

// Add implements Object.
func (Uplinks) Add() []string { return []string{"# ebpf: attach fl_uplink to every uplink"} }

// Del implements Object.
func (Uplinks) Del() []string { return []string{"# ebpf: detach fl_uplink from every uplink"} }

// Ingress is our eBPF program where packets come from a sandbox.
type Ingress struct {
	// Link is the host's end of the sandbox's link.
	Link string
	// V4 and V6 are the sandbox's addresses: packets with another source begin no
	// flow. The zero address is none.
	V4, V6 netip.Addr
	// Shared says that the link has no other end: many sandboxes are behind it,
	// to be reached by their hardware addresses, as the LAN is by an uplink.
	Shared bool
}

// Key implements Object.
func (i Ingress) Key() string { return "bpf ingress " + i.Link }

// Add implements Object.
func (i Ingress) Add() []string {
	line := fmt.Sprintf("# ebpf: attach %s to %s", i.program(), escape.Shell(i.Link))
	for _, a := range i.Sources() {
		line += " source " + a.String()
	}
	return []string{line}
}

// Del implements Object. It goes with its link, and may go before.
func (i Ingress) Del() []string {
	return []string{fmt.Sprintf("# ebpf: detach %s from %s", i.program(), escape.Shell(i.Link))}
}

// Sources are the addresses that packets by the link may come from.
func (i Ingress) Sources() (all []netip.Addr) {
	for _, a := range []netip.Addr{i.V4, i.V6} {
		if a.IsValid() {
			all = append(all, a)
		}
	}
	return all
}

func (i Ingress) program() string {
	if i.Shared {
		return "fl_uplink"
	}
	return "fl_sandbox"
}

func (i Ingress) base() string { return end("", i.Link) }

// SandboxIngress is the program where packets come from a sandbox with those
// addresses, at most one of each family.
func SandboxIngress(link string, addrs []netip.Addr) Ingress {
	i := Ingress{Link: link}
	i.V4, _ = ofFamily(addrs, true)
	i.V6, _ = ofFamily(addrs, false)
	return i
}

// LocalClients is our eBPF hooks at the socket calls of the host's own
// processes: connect, sendmsg, recvmsg, getpeername, bind and the last close.
type LocalClients struct {
	Found
}

// Key implements Object.
func (LocalClients) Key() string { return "bpf local clients" }

// Add implements Object.
func (LocalClients) Add() []string { return []string{"# ebpf: attach local to the cgroup root"} }

// Del implements Object.
func (LocalClients) Del() []string {
	return []string{"# ebpf: detach local from the cgroup root"}
}

// AttachPrograms is our eBPF programs where packets and local clients may come from,
// given the attachments of all endpoints of the host. Every sandbox's link has
// the program, as every sandbox may be a client; those without an end on the
// host come by the link that leads there. Those of internal networks have none:
// no published port is for them.
func AttachPrograms(all []Attachment) Plan {
	p := Plan{Uplinks{}, LocalClients{}}
	for _, a := range all {
		switch {
		case a.Internal:
		case a.Port != "":
			p = append(p, SandboxIngress(a.Port, a.Addresses))
		case a.Link != "":
			p = append(p, Ingress{Link: a.Link, Shared: true})
		}
	}
	return p
}

// EBPFMapping leads packets and local clients for a host address and ports to an
// endpoint: one entry of the eBPF table, whatever the number of ports.
type EBPFMapping struct {
	Proto model.Proto
	// Host is a local address, or unspecified for every one of its family.
	Host  netip.Addr
	Ports model.PortRange
	// To is the endpoint's address. Of another family than Host, it is for
	// local clients only.
	To      netip.Addr
	ToPorts model.PortRange
	// Link is the host's end of the endpoint's link.
	Link string
	// Masquerade is the host's address in the endpoint's network, of To's
	// family: the endpoint sees it when it reaches itself.
	Masquerade netip.Addr
	// Reserved says that a socket of the proxy holds the ports; otherwise the eBPF
	// hooks refuse them to others.
	Reserved bool
	// Reset ends the TCP connections with a reset when the lead goes.
	Reset bool
}

// Key implements Object.
func (l EBPFMapping) Key() string {
	return "bpf lead " + string(l.Proto) + " " + hostPorts(l.Host, l.Ports)
}

// Add implements Object.
func (l EBPFMapping) Add() []string {
	flags := ""
	if l.Reserved {
		flags += " held"
	}
	if l.Reset {
		flags += " reset"
	}
	return []string{fmt.Sprintf("# ebpf: map %s %s to %s dev %s masquerade %s%s", l.Proto,
		hostPorts(l.Host, l.Ports), hostPorts(l.To, l.ToPorts), escape.Shell(l.Link), l.Masquerade, flags)}
}

// Del implements Object.
func (l EBPFMapping) Del() []string {
	return []string{fmt.Sprintf("# ebpf: unmap %s %s", l.Proto, hostPorts(l.Host, l.Ports))}
}

func (l EBPFMapping) base() string { return end("", l.Link) }

// BindHooks is our eBPF hooks at the socket calls of one workload in the host's
// namespace: what it binds, and what it is told that it has bound.
type BindHooks struct {
	// Cgroup is the workload's cgroup v2 directory.
	Cgroup   string
	Unlisted model.Unpublished
	Found
}

// Key implements Object.
func (b BindHooks) Key() string { return "bpf bounds " + b.Cgroup }

// Add implements Object.
func (b BindHooks) Add() []string {
	return []string{fmt.Sprintf("# ebpf: bound %s, unlisted ports %s", escape.Shell(b.Cgroup), b.Unlisted)}
}

// Del implements Object.
func (b BindHooks) Del() []string { return []string{"# ebpf: unbound " + escape.Shell(b.Cgroup)} }

// Grant gives a workload in the host's namespace a host port for each port
// that it asks for: one entry of the eBPF table, whatever the number.
type Grant struct {
	Cgroup string
	Proto  model.Proto
	// Host is the local address to bind, or unspecified for every one of its
	// family: each family has a grant of its own.
	Host  netip.Addr
	Ports model.PortRange
	// Own are the ports that the workload asks for.
	Own model.PortRange
}

// Key implements Object.
func (g Grant) Key() string {
	return "bpf grant " + string(g.Proto) + " " + hostPorts(g.Host, g.Ports)
}

// Add implements Object.
func (g Grant) Add() []string {
	return []string{fmt.Sprintf("# ebpf: grant %s %s as %s to %s", g.Proto, hostPorts(g.Host, g.Ports), g.Own, escape.Shell(g.Cgroup))}
}

// Del implements Object.
func (g Grant) Del() []string {
	return []string{fmt.Sprintf("# ebpf: revoke %s %s", g.Proto, hostPorts(g.Host, g.Ports))}
}
