package plan

import (
	"fmt"

	"fairlead/internal/escape"
)

// IPv6 is the IPv6 mode of a link: whether it has IPv6, and whether the network
// behind it may change the routes and addresses of the link's namespace. The zero
// value is the strictest, so a link whose driver sets no mode is closed.
type IPv6 uint8

const (
	// IPv6Off disables IPv6 on the link, because its network has no IPv6.
	IPv6Off IPv6 = iota
	// IPv6Fixed enables IPv6. Addresses and routes come from the plan only:
	// router advertisements, redirects and source routes are ignored.
	IPv6Fixed
	// IPv6Auto keeps the namespace's settings, for a network that configures its
	// hosts with DHCP or router advertisements.
	IPv6Auto
	// IPv6Altered is never desired. Package kernel reports it for a link whose
	// settings another program has changed.
	IPv6Altered
)

// Settings returns the sysctls of a link in this mode. They are set before the link
// is set up, and disappear with the link. Linux combines accept_redirects of IPv4
// with the setting for all links: see SandboxRedirects.
func (m IPv6) Settings(netns, link string) []Sysctl {
	if m != IPv6Off && m != IPv6Fixed {
		return nil
	}
	disable := "0"
	if m == IPv6Off {
		disable = "1"
	}
	at := func(family, name, value string) Sysctl {
		return Sysctl{Netns: netns, Name: fmt.Sprintf("net.%s.conf.%s.%s", family, link, name), Value: value}
	}
	return []Sysctl{
		at("ipv6", "accept_ra", "0"),
		at("ipv6", "autoconf", "0"),
		at("ipv6", "accept_redirects", "0"),
		at("ipv6", "disable_ipv6", disable),
		at("ipv4", "accept_redirects", "0"),
		at("ipv4", "accept_source_route", "0"),
	}
}

// SandboxRedirects makes a sandbox ignore IPv4 redirects. A namespace that does not
// forward accepts a redirect if the link's setting or the one for all links allows
// it.
func SandboxRedirects(netns string) Sysctl {
	return Sysctl{Netns: netns, Name: "net.ipv4.conf.all.accept_redirects", Value: "0"}
}

// configured is a link whose settings are part of the plan.
type configured interface{ settings() []Sysctl }

// LinkSettings returns the sysctls of the links that the object consists of; nil if
// it is not a link.
func LinkSettings(o Object) []Sysctl {
	if c, ok := o.(configured); ok {
		return c.settings()
	}
	return nil
}

func (l Link) settings() []Sysctl {
	if l.Kind == Loopback {
		return nil
	}
	all := l.IPv6.Settings(l.Netns, l.Name)
	if l.Kind == Veth && !l.Inside {
		all = append(all, l.PeerIPv6.Settings(l.PeerNetns, l.Peer)...)
	}
	return all
}

func (b SubLink) settings() []Sysctl {
	if b.Inside != "" {
		return nil
	}
	return b.IPv6.Settings(b.Netns, b.Name)
}

func (t Tunnel) settings() []Sysctl { return t.IPv6.Settings("", t.Name) }

func (c WireGuard) settings() []Sysctl { return c.IPv6.Settings("", c.Name) }

func (d Device) settings() []Sysctl { return d.IPv6.Settings(d.Netns, d.Name) }

func (l IPoIB) settings() []Sysctl { return l.IPv6.Settings(l.Netns, l.Name) }

// writeSettings returns the commands that write the settings: one command per
// namespace.
func writeSettings(all []Sysctl) []string {
	var cmds []string
	for i, s := range all {
		if i == 0 || s.Netns != all[i-1].Netns {
			cmds = append(cmds, in(s.Netns, "sysctl")+" -w")
		}
		cmds[len(cmds)-1] += " " + escape.Shell(s.Name+"="+s.Value)
	}
	return cmds
}
