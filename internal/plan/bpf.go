package plan

import (
	"fmt"
	"net/netip"

	"fairlead/internal/escape"
	"fairlead/internal/model"
)

// Uplinks is the eBPF program at the ingress of every link of the host that is
// neither loopback, nor made by Fairlead, nor a port of a bridge.
type Uplinks struct {
	Found
}

// Found describes what was found of an object that consists of several parts. It is
// empty in desired objects.
type Found struct {
	// Partly is true if some parts exist and others are missing. Restoring this
	// state means to change nothing; it never removes the parts that exist.
	Partly bool
}

// IsPartly reports whether only some parts of the object were found.
func (f Found) IsPartly() bool { return f.Partly }

// Key implements Object.
func (Uplinks) Key() string { return "bpf uplinks" }

// Add implements Object.
func (Uplinks) Add() []string { return []string{"# ebpf: attach fl_uplink to every uplink"} }

// Del implements Object.
func (Uplinks) Del() []string { return []string{"# ebpf: detach fl_uplink from every uplink"} }

// Ingress is the eBPF program that handles packets from a sandbox.
type Ingress struct {
	// Link is the host's end of the sandbox's link.
	Link string
	// V4 and V6 are the sandbox's addresses: packets with another source address do
	// not begin a flow. The zero address means none.
	V4, V6 netip.Addr
	// Shared is true if many sandboxes are behind the link. They are reached by
	// their hardware addresses, as LAN neighbours are through an uplink.
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

// Del implements Object. The kernel also detaches the program if the link is
// deleted.
func (i Ingress) Del() []string {
	return []string{fmt.Sprintf("# ebpf: detach %s from %s", i.program(), escape.Shell(i.Link))}
}

// Sources returns the source addresses that packets from the link may have.
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

// SandboxIngress returns the program for packets from a sandbox with these
// addresses, at most one per family.
func SandboxIngress(link string, addrs []netip.Addr) Ingress {
	i := Ingress{Link: link}
	i.V4, _ = ofFamily(addrs, true)
	i.V6, _ = ofFamily(addrs, false)
	return i
}

// LocalClients are the eBPF hooks at the socket calls of the host's processes:
// connect, sendmsg, recvmsg, getpeername, bind and the last close.
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

// AttachPrograms returns the eBPF programs at all places where packets and local
// clients can come from, given the attachments of all endpoints of the host. Every
// sandbox's link gets the program, because every sandbox may be a client. Packets
// of sandboxes without a link end on the host come through the shared link that
// has the route to them. Links of internal networks get no program, because these networks
// must not reach published ports.
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

// EBPFMapping redirects packets and local clients from a host address and ports to
// an endpoint. It is one entry of the eBPF table, for any number of ports.
type EBPFMapping struct {
	Proto model.Proto
	// Host is a local address, or unspecified for all addresses of its family.
	Host  netip.Addr
	Ports model.PortRange
	// To is the endpoint's address. If its family differs from Host's, the mapping
	// serves local clients only.
	To      netip.Addr
	ToPorts model.PortRange
	// Link is the host's end of the endpoint's link.
	Link string
	// Masquerade is the host's address in the endpoint's network, of To's family.
	// The endpoint sees this address when it is a client of itself.
	Masquerade netip.Addr
	// Reserved is true if a socket of the proxy reserves the ports. If it is false,
	// the eBPF hooks refuse to bind the ports.
	Reserved bool
	// Reset ends the open TCP connections with a reset when the mapping is removed.
	Reset bool
}

// Key implements Object.
func (l EBPFMapping) Key() string {
	return "bpf mapping " + string(l.Proto) + " " + hostPorts(l.Host, l.Ports)
}

func (EBPFMapping) group() Group { return GroupEBPF }

// Add implements Object.
func (l EBPFMapping) Add() []string {
	flags := ""
	if l.Reserved {
		flags += " reserved"
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

// BindHooks are the eBPF hooks at the socket calls of one workload in the host's
// namespace. They change the addresses and ports that it binds, and those that it
// reads back.
type BindHooks struct {
	// Cgroup is the workload's cgroup v2 directory.
	Cgroup      string
	Unpublished model.Unpublished
	Found
}

// Key implements Object.
func (b BindHooks) Key() string { return "bpf bind hooks " + b.Cgroup }

// Add implements Object.
func (b BindHooks) Add() []string {
	return []string{fmt.Sprintf("# ebpf: attach bind hooks to %s, unpublished ports %s", escape.Shell(b.Cgroup),
		b.Unpublished)}
}

// Del implements Object.
func (b BindHooks) Del() []string {
	return []string{"# ebpf: detach bind hooks from " + escape.Shell(b.Cgroup)}
}

// Grant gives a workload in the host's namespace one host port for each port that
// it binds. It is one entry of the eBPF table, for any number of ports.
type Grant struct {
	Cgroup string
	Proto  model.Proto
	// Host is the local address to bind, or unspecified for all addresses of its
	// family. Each family needs a separate grant.
	Host  netip.Addr
	Ports model.PortRange
	// Own are the ports that the workload asks for in bind(2).
	Own model.PortRange
}

// Key implements Object.
func (g Grant) Key() string {
	return "bpf grant " + string(g.Proto) + " " + hostPorts(g.Host, g.Ports)
}

func (Grant) group() Group { return GroupEBPF }

// Add implements Object.
func (g Grant) Add() []string {
	return []string{fmt.Sprintf("# ebpf: grant %s %s as %s to %s", g.Proto, hostPorts(g.Host, g.Ports), g.Own,
		escape.Shell(g.Cgroup))}
}

// Del implements Object.
func (g Grant) Del() []string {
	return []string{fmt.Sprintf("# ebpf: revoke %s %s", g.Proto, hostPorts(g.Host, g.Ports))}
}
