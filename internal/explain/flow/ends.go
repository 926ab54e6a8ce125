package flow

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/escape"
	"fairlead/internal/kernel/rtnl"
)

// hostNames are the names of the host as an end of a flow.
var hostNames = []string{"host", "localhost"}

// ends are both ends of a flow, resolved.
type ends struct {
	netns string // where it begins
	// origin is the namespace of the client's machine, if that is a namespace on
	// this host, as in tests; known is true if it is.
	origin string
	known  bool
	// also is another namespace that has src, if the flow begins on the host; empty if there is none.
	also string
	// in is the link on which the flow arrives from another machine; empty if it
	// begins on this host.
	in       string
	src      netip.Addr // the zero value lets the route choose
	dst      netip.AddrPort
	loopback bool
}

// resolve returns where a flow begins and what it dials.
func resolve(w World, f Flow) (ends, error) {
	var e ends
	if err := e.begin(w, f.From); err != nil {
		return e, fmt.Errorf("explain %s: %w", f, err)
	}
	if err := e.end(w, f); err != nil {
		return e, fmt.Errorf("explain %s: %w", f, err)
	}
	if e.src.IsValid() && e.src.Is4() != e.dst.Addr().Is4() {
		return e, fmt.Errorf("explain %s: %s and %s are of different families: give two addresses of one family", f,
			e.src, e.dst.Addr())
	}
	return e, nil
}

// begin resolves the first end.
func (e *ends) begin(w World, from string) error {
	if slices.Contains(hostNames, from) || from == "" {
		e.loopback = from == "localhost"
		return nil
	}
	addr, err := netip.ParseAddr(from)
	if err != nil && looksLikeAddress(from) {
		return fmt.Errorf("%q is not a valid IP address", from)
	}
	if err != nil {
		e.netns, err = w.Namespaces.Find(from)
		return err
	}
	e.src = addr
	local, err := addresses(w.Links, "")
	if err != nil {
		return err
	}
	if addr.IsLoopback() || slices.ContainsFunc(local, func(p netip.Prefix) bool { return p.Addr() == addr }) {
		e.loopback = addr.IsLoopback()
		if other, linked, ok := w.Namespaces.Holder(addr); ok && linked && !addr.IsLoopback() {
			e.also = other
		}
		return nil
	}
	// Packets of a namespace that is not linked to the host do not arrive: a machine of the LAN has the address too.
	if netns, linked, ok := w.Namespaces.Holder(addr); ok && linked {
		e.origin, e.known = netns, true
	}
	if e.known && !outside(w, addr) {
		e.netns = e.origin
		return nil
	}
	return e.arrives(w, addr)
}

// looksLikeAddress reports whether a text that is not an address was meant to be
// one: it has only digits and dots, or several colons.
func looksLikeAddress(text string) bool {
	if strings.Count(text, ":") > 1 && !strings.Contains(text, "/") &&
		strings.Trim(text, "0123456789abcdefABCDEFgGxXyYzZ:.%") == "" {
		return true
	}
	return strings.Contains(text, ".") && strings.Trim(text, "0123456789./") == ""
}

// outside reports whether the address is behind a link of the host that is not
// Fairlead's: a machine of the LAN, even if its namespace is on this host.
func outside(w World, addr netip.Addr) bool {
	r, err := w.Routes.Route("", rtnl.RouteQuery{To: addr})
	if err != nil {
		return false
	}
	l, ok := linkOf(w.Links, "", r.Link)
	return ok && l.Owner == "" && l.Kind != "bridge"
}

// arrives finds the link on which another machine's packets arrive: the link of
// the host's route to it.
func (e *ends) arrives(w World, addr netip.Addr) error {
	r, err := w.Routes.Route("", rtnl.RouteQuery{To: addr})
	if err != nil {
		return fmt.Errorf("%s is not an address of this host or of a sandbox, and the host has no route to it: %w",
			addr, err)
	}
	e.in = r.Link
	return nil
}

// end resolves what is dialled.
func (e *ends) end(w World, f Flow) error {
	if addr, err := netip.ParseAddr(f.To); err == nil {
		e.dst = netip.AddrPortFrom(addr, f.Port)
		return nil
	}
	var found netip.Addr
	var err error
	switch {
	case looksLikeAddress(f.To):
		return fmt.Errorf("%q is not a valid IP address", f.To)
	case f.To == "" || f.To == "host":
		found, err = e.hostAddress(w)
	case f.To == "localhost":
		found = e.loopbackAddress()
	default:
		var netns string
		if netns, err = w.Namespaces.Find(f.To); err == nil {
			found, err = e.addressIn(w, netns, f.To)
		}
	}
	e.dst = netip.AddrPortFrom(found, f.Port)
	return err
}

func (e *ends) loopbackAddress() netip.Addr {
	if e.src.Is6() {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// hostAddress returns the address of the host that the client dials: that of the
// link on which it arrives, or the first that is not on a link of Fairlead or a
// bridge, or any.
func (e *ends) hostAddress(w World) (netip.Addr, error) {
	if e.loopback {
		return e.loopbackAddress(), nil
	}
	links, err := w.Links.Links("")
	if err != nil {
		return netip.Addr{}, err
	}
	want4 := !e.src.IsValid() || e.src.Is4()
	var others netip.Addr
	for _, l := range links {
		for _, p := range l.Addresses {
			a := p.Addr()
			switch {
			case a.IsLoopback() || a.IsLinkLocalUnicast() || a.Is4() != want4:
			case e.in == l.Name || e.in == "" && l.Owner == "" && l.Kind != "bridge":
				return a, nil
			case !others.IsValid():
				others = a
			}
		}
	}
	if !others.IsValid() {
		return others, errors.New("the host has no address that the client could dial: give an address")
	}
	return others, nil
}

// addressIn returns the address of a sandbox that the flow dials: one in a subnet
// that the client also has, or the first.
func (e *ends) addressIn(w World, netns, name string) (netip.Addr, error) {
	remote, err := addresses(w.Links, netns)
	if err != nil {
		return netip.Addr{}, err
	}
	local, err := addresses(w.Links, e.netns)
	if err != nil {
		return netip.Addr{}, err
	}
	var first netip.Addr
	for _, p := range remote {
		a := p.Addr()
		if a.IsLoopback() || a.IsLinkLocalUnicast() || e.src.IsValid() && e.src.Is4() != a.Is4() {
			continue
		}
		if slices.ContainsFunc(local, func(h netip.Prefix) bool { return h.Masked().Contains(a) && h.Addr() != a }) {
			return a, nil
		}
		if !first.IsValid() {
			first = a
		}
	}
	if !first.IsValid() {
		return first, fmt.Errorf("%s has no address of the family to dial: see `fairlead inspect %s`", name,
			escape.Shell(name))
	}
	return first, nil
}

// addresses returns the addresses of a namespace, IPv4 first.
func addresses(l Links, netns string) ([]netip.Prefix, error) {
	links, err := l.Links(netns)
	var all []netip.Prefix
	for _, o := range links {
		all = append(all, o.Addresses...)
	}
	slices.SortStableFunc(all, func(a, b netip.Prefix) int { return a.Addr().BitLen() - b.Addr().BitLen() })
	return all, err
}

func linkOf(l Links, netns, name string) (rtnl.NetLink, bool) {
	links, err := l.Links(netns)
	if err != nil {
		return rtnl.NetLink{}, false
	}
	i := slices.IndexFunc(links, func(o rtnl.NetLink) bool { return o.Name == name })
	if i < 0 {
		return rtnl.NetLink{}, false
	}
	return links[i], true
}
