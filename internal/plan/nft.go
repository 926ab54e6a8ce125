package plan

import (
	"fmt"
	"net/netip"
	"strings"

	"fairlead/internal/escape"
	"fairlead/internal/model"
)

// NFTMapping translates packets for a host address and ports to an endpoint. It is
// one element of one of the maps.
type NFTMapping struct {
	// Host is a local address, or unspecified for all addresses of its family.
	Host  netip.Addr
	Proto model.Proto
	Ports model.PortRange
	// To is the endpoint's address, of the same family as Host.
	To netip.Addr
	// ToPort is the endpoint's port. 0 keeps the port; Ports may have more than one
	// port only then.
	ToPort uint16
}

// Map returns the name of the map that holds the element.
func (m NFTMapping) Map() string {
	switch {
	case m.ToPort == 0:
		return MapRanges + m.suffix()
	case m.Host.IsUnspecified():
		return MapAnyPorts + m.suffix()
	default:
		return MapPorts + m.suffix()
	}
}

// HostRange returns the host addresses that the element covers.
func (m NFTMapping) HostRange() netip.Prefix {
	if m.Host.IsUnspecified() {
		return netip.PrefixFrom(m.Host, 0)
	}
	return netip.PrefixFrom(m.Host, m.Host.BitLen())
}

func (m NFTMapping) suffix() string { return familySuffix(m.Host) }

// Key implements Object.
func (m NFTMapping) Key() string {
	return "nft " + m.Map() + " " + m.Host.String() + " " + string(m.Proto) + " " + m.Ports.String()
}

func (NFTMapping) group() Group { return GroupTable }

// Add implements Object.
func (m NFTMapping) Add() []string {
	to := m.To.String()
	if m.ToPort != 0 {
		to = fmt.Sprintf("%s . %d", m.To, m.ToPort)
	}
	return nftElement("add", Mark, m.Map(), m.element()+" : "+to)
}

// Del implements Object.
func (m NFTMapping) Del() []string {
	return nftElement("delete", Mark, m.Map(), m.element())
}

// change implements changer. It replaces the element in one transaction, because
// nft does not add an element that exists with another value.
func (m NFTMapping) change(old Object) []string {
	join := strings.NewReplacer("nft ", "", "'", "")
	return []string{"nft '" + join.Replace(old.Del()[0]) + "; " + join.Replace(m.Add()[0]) + "'"}
}

func (m NFTMapping) element() string {
	ports := fmt.Sprintf("%s . %s", m.Proto, m.Ports)
	switch {
	case m.ToPort == 0:
		return m.HostRange().String() + " . " + ports
	case m.Host.IsUnspecified():
		return ports
	default:
		return m.Host.String() + " . " + ports
	}
}

// Member is an element of one of the sets: a link's name, a pair of links, or a
// pair of address ranges.
type Member struct {
	// Set is one of the Set constants.
	Set  string
	Link string
	Src  netip.Prefix
	Dst  netip.Prefix
}

// Name returns the set's name, with the family's suffix if it holds addresses.
func (m Member) Name() string {
	if m.Link != "" {
		return m.Set
	}
	return m.Set + familySuffix(m.Src.Addr())
}

// Key implements Object.
func (m Member) Key() string { return "nft " + m.Name() + " " + m.element() }

func (Member) group() Group { return GroupTable }

// Add implements Object.
func (m Member) Add() []string { return nftElement("add", Mark, m.Name(), m.element()) }

// Del implements Object.
func (m Member) Del() []string { return nftElement("delete", Mark, m.Name(), m.element()) }

func (m Member) element() string {
	switch {
	case m.Set == SetWithin:
		return m.Link + " . " + m.Link
	case m.Link != "":
		return m.Link
	default:
		return m.Src.String() + " . " + m.Dst.String()
	}
}

// Proxied closes a host address and ports of the proxy for internal networks. It is
// an element of a set.
type Proxied struct {
	// Host is a local address, or unspecified for all addresses of its family.
	Host  netip.Addr
	Proto model.Proto
	Ports model.PortRange
}

// Name returns the name of the set that holds the element.
func (p Proxied) Name() string { return SetProxied + familySuffix(p.Host) }

// Key implements Object.
func (p Proxied) Key() string { return "nft " + p.Name() + " " + p.element() }

func (Proxied) group() Group { return GroupTable }

// Add implements Object.
func (p Proxied) Add() []string { return nftElement("add", Mark, p.Name(), p.element()) }

// Del implements Object.
func (p Proxied) Del() []string { return nftElement("delete", Mark, p.Name(), p.element()) }

func (p Proxied) element() string {
	return fmt.Sprintf("%s . %s . %s", NFTMapping{Host: p.Host}.HostRange(), p.Proto, p.Ports)
}

// ProxiedPorts returns the elements that close the ports of the parts' listeners
// for internal networks. It returns nil if no part has an internal network.
func ProxiedPorts(parts []Part) Plan {
	internal := false
	var listeners []Listener
	for _, part := range parts {
		for _, o := range part.objects {
			switch o := o.(type) {
			case Link:
				internal = internal || o.Group == InternalLinks
			case Listener:
				listeners = append(listeners, o)
			}
		}
	}
	if !internal {
		return nil
	}
	var all Plan
	for _, l := range listeners {
		hosts := []netip.Addr{l.Host}
		if !l.Host.IsValid() {
			hosts = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
		}
		for _, host := range hosts {
			all = append(all, Proxied{host, l.Proto, l.Ports})
		}
	}
	return all
}

// nftElement returns the command that adds or deletes an element of a set.
func nftElement(verb, table, set, element string) []string {
	return []string{fmt.Sprintf("nft %s element inet %s %s %s", verb, table, set, escape.Shell("{ "+element+" }"))}
}

func familySuffix(a netip.Addr) string {
	if a.Is4() {
		return "4"
	}
	return "6"
}
