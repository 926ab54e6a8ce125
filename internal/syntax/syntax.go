// Package syntax parses and formats the values that users write in commands and in
// files: addresses, ports, rates, networks. It handles one value at a time;
// package model checks whether values fit together.
package syntax

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairlead/internal/model"
	"fairlead/internal/paths"
)

// Address parses an address of an attachment and adds it to the endpoint. If the
// network has no subnet, the address has a prefix length.
func Address(e *model.Endpoint, text string) error {
	if p, err := netip.ParsePrefix(text); err == nil {
		e.Prefixes = append(e.Prefixes, p)
	} else if a, err := netip.ParseAddr(text); err == nil {
		e.Addresses = append(e.Addresses, a)
	} else {
		return fmt.Errorf("address %q: want an address, e.g. 192.0.2.7 or 192.0.2.7/24", text)
	}
	return nil
}

// NoGateway is the value for no default gateway.
const NoGateway = "none"

// Gateway parses a default gateway of an attachment, or NoGateway, and adds it to
// the endpoint.
func Gateway(e *model.Endpoint, text string) error {
	if text == NoGateway && len(e.Gateways) == 0 {
		e.NoDefault = true
		return nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || e.NoDefault {
		return fmt.Errorf("gateway %q: want an address, or none as the only gateway", text)
	}
	e.Gateways = append(e.Gateways, a)
	return nil
}

// Route parses RANGE or RANGE,via=ADDRESS.
func Route(text string) (r model.Route, err error) {
	to, via, hasVia := strings.Cut(text, ",via=")
	if r.To, err = netip.ParsePrefix(to); err == nil && hasVia {
		r.Via, err = netip.ParseAddr(via)
	}
	if err != nil {
		return r, fmt.Errorf("route %q: want RANGE or RANGE,via=ADDRESS, e.g. 10.0.0.0/8,via=192.0.2.254", text)
	}
	return r, nil
}

// FormatRoute writes a route as Route reads it.
func FormatRoute(r model.Route) string {
	if r.Via.IsValid() {
		return fmt.Sprintf("%s,via=%s", r.To, r.Via)
	}
	return r.To.String()
}

// PKey parses an InfiniBand partition key.
func PKey(text string) (uint16, error) {
	key, err := strconv.ParseUint(text, 0, 16)
	if err != nil || key == 0 {
		return 0, fmt.Errorf("pkey %q: want a partition key of 16 bits, e.g. 0x8001", text)
	}
	return uint16(key), nil
}

// FormatPKey writes a partition key as PKey reads it.
func FormatPKey(key uint16) string { return fmt.Sprintf("0x%04x", key) }

// rateUnits are the units of tc(8), in bits per second.
var rateUnits = []struct {
	suffix string
	bits   uint64
}{{"tbit", 1e12}, {"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}

// Rate parses a rate as tc(8) does, e.g. 100mbit or 2.5gbit, and returns bits per
// second. "" means unlimited and returns 0.
func Rate(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	for _, unit := range rateUnits {
		if number, ok := strings.CutSuffix(strings.ToLower(text), unit.suffix); ok {
			n, err := strconv.ParseFloat(number, 64)
			if rate := n * float64(unit.bits); err == nil && rate >= 1 && rate < 1e15 {
				return uint64(rate), nil
			}
			break
		}
	}
	return 0, fmt.Errorf("%q: want a number and one of kbit, mbit, gbit, e.g. 100mbit", text)
}

// FormatRate writes a rate as Rate reads it, in the largest unit of which it is a
// multiple. It returns "" for 0.
func FormatRate(rate uint64) string {
	for _, unit := range rateUnits {
		if rate != 0 && rate%unit.bits == 0 {
			return fmt.Sprintf("%d%s", rate/unit.bits, unit.suffix)
		}
	}
	return ""
}

// Host parses a host address. An IPv6 address must be in brackets.
func Host(text string) (netip.Addr, error) {
	inside, bracketed := strings.CutPrefix(text, "[")
	if bracketed {
		inside, bracketed = strings.CutSuffix(inside, "]")
	}
	a, err := netip.ParseAddr(inside)
	if err != nil || a.Is6() != bracketed {
		return a, fmt.Errorf("host address %q: want an IPv4 address, or an IPv6 address in brackets", text)
	}
	return a, nil
}

// FormatHost writes the host address of a publish as it is typed before the port.
// It returns "" if the port is published on all addresses.
func FormatHost(p model.Publish) string {
	switch {
	case !p.HostAddr.IsValid():
		return ""
	case p.HostAddr.Is6():
		return "[" + p.HostAddr.String() + "]:"
	}
	return p.HostAddr.String() + ":"
}

// Publish parses [ADDRESS:]HOST:CONTAINER[/PROTOCOL] as Docker does. An IPv6
// address must be in brackets.
func Publish(text string) (p model.Publish, err error) {
	text, proto, found := strings.Cut(text, "/")
	p.Proto = model.TCP
	if found {
		p.Proto = model.Proto(proto)
	}
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		return p, errors.New("want a host port and a container port, e.g. 8080:80")
	}
	if p.Ports, err = model.ParsePortRange(text[colon+1:]); err != nil {
		return p, err
	}
	text = text[:colon]
	host := strings.LastIndexByte(text, ':')
	if p.HostPorts, err = model.ParsePortRange(text[host+1:]); err != nil {
		return p, err
	}
	if host >= 0 {
		p.HostAddr, err = Host(text[:host])
	}
	return p, err
}

// FormatPublish writes a publish as Publish reads it. It omits /tcp.
func FormatPublish(p model.Publish) string {
	short := fmt.Sprintf("%s%s:%s", FormatHost(p), p.HostPorts, p.Ports)
	if p.Proto != model.TCP {
		short += "/" + string(p.Proto)
	}
	return short
}

// Unpublish parses [ADDRESS:]HOST[:CONTAINER][/PROTOCOL].
func Unpublish(text string) (model.Publish, error) {
	p, err := Publish(text)
	if err == nil {
		return p, nil
	}
	// Without a container port, the last port is the host port.
	host, proto, _ := strings.Cut(text, "/")
	last := host[strings.LastIndexByte(host, ':')+1:]
	if proto != "" {
		proto = "/" + proto
	}
	if short, err := Publish(host + ":" + last + proto); err == nil {
		return short, nil
	}
	return p, errors.New("want [ADDRESS:]HOST[:CONTAINER][/udp], e.g. 8080, 8080:80 or 127.0.0.1:5353/udp")
}

// Vias are the publish modes for attached sandboxes, the cheapest first.
var Vias = words(append([]model.Via{model.ViaAuto}, paths.SandboxModes(paths.ByCost())...))

// Via parses the publish mode for ports of an attached sandbox: one of Vias.
func Via(text string) (model.Via, error) {
	if !slices.Contains(Vias, text) {
		return "", fmt.Errorf("via %q: want one of %s", text, strings.Join(Vias, ", "))
	}
	return model.Via(text), nil
}
