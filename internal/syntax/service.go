package syntax

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairlead/internal/model"
)

// Schedulers are the names of the schedulers, those of ipvsadm(8).
var Schedulers = words(model.AllSchedulers())

// Forwards, Planes, SourceNATs and Checks are the allowed values of settings of a
// virtual service.
var (
	Forwards = []string{string(model.ForwardNAT), string(model.ForwardDirect), string(model.ForwardTunnel),
		string(model.ForwardLocal)}
	Planes     = words(append([]model.Plane{model.PlaneAuto}, model.Planes()...))
	SourceNATs = []string{string(model.SourceNATAuto), string(model.SourceNATRouted),
		string(model.SourceNATMasqueraded)}
	Checks = words(model.CheckTypes())
)

// words returns names as words of commands and files.
func words[T ~string](names []T) []string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = string(n)
	}
	return all
}

// oneOf returns a parser for one of some words. It accepts "" as the zero value.
func oneOf[T ~string](what string, words []string) func(string) (T, error) {
	return func(text string) (T, error) {
		if text != "" && !slices.Contains(words, text) {
			return "", fmt.Errorf("%s %q: want one of %s", what, text, strings.Join(words, ", "))
		}
		return T(text), nil
	}
}

var realState = oneOf[model.RealState]("state", []string{string(model.RealDraining), string(model.RealDown)})

// Ports parses ports and port ranges, separated by commas: 80,443,8000-8010.
func Ports(text string) (all []model.PortRange, err error) {
	for part := range strings.SplitSeq(text, ",") {
		r, err := model.ParsePortRange(part)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// Frontend parses ADDRESS:PORTS[/PROTOCOL], with an IPv6 address in brackets, and
// adds the address to the service. All addresses of a service must have the same
// ports and protocol.
func Frontend(v *model.VirtualService, text string) error {
	at, proto, named := strings.Cut(text, "/")
	if !named {
		proto = string(model.TCP)
	}
	colon := strings.LastIndexByte(at, ':')
	if colon < 0 {
		return fmt.Errorf("%q: want an address and a port of the service, e.g. 192.0.2.10:80 or [2001:db8::10]:53/udp",
			text)
	}
	a, err := Host(at[:colon])
	if err != nil {
		return err
	}
	ports, err := Ports(at[colon+1:])
	if err != nil {
		return err
	}
	if len(v.Addresses) > 0 && (!slices.Equal(ports, v.Ports) || model.Proto(proto) != v.Proto) {
		return fmt.Errorf("%s: its ports or protocol differ from those of the service's other addresses: create "+
			"another service for it", text)
	}
	v.Addresses, v.Ports, v.Proto = append(slices.Clip(v.Addresses), a), ports, model.Proto(proto)
	return nil
}

// Real parses a real server: ADDRESS[:PORT], or a selector of sandboxes
// (name=PATTERN, label=KEY[=VALUE] and network=NETWORK, separated by commas) and
// :PORT. ,weight=N and ,state=draining or ,state=down can follow. The default
// weight is 1.
func Real(text string) (model.RealServer, error) {
	r, err := parseReal(text)
	if err != nil {
		return r, fmt.Errorf("real server %q: %w", text, err)
	}
	return r, nil
}

func parseReal(text string) (r model.RealServer, err error) {
	r.Weight = 1
	parts := strings.Split(text, ",")
	ported := slices.ContainsFunc(parts, func(p string) bool { return strings.HasPrefix(p, "port=") })
	for i, part := range parts {
		key, value, named := strings.Cut(part, "=")
		if !named && i == 0 {
			if r.Address, r.Port, err = addressPort(part); err != nil {
				return r, fmt.Errorf("%w, or a selector: name=, label= or network=", err)
			}
			continue
		}
		if !ported && (key == "name" || key == "label" || key == "network") {
			value, r.Port = cutPort(value, r.Port)
		}
		switch key {
		case "name":
			r.Select.Name = value
		case "label":
			r.Select.Label = value
		case "network":
			r.Select.Network = value
		case "weight":
			if r.Weight, err = strconv.Atoi(value); err != nil {
				err = fmt.Errorf("weight %q: want a number", value)
			}
		case "port":
			r.Port, err = port(value)
		case "state":
			r.State, err = realState(value)
		default:
			err = fmt.Errorf("%q: want ADDRESS[:PORT], or name=, label=, network=, port=, weight=, state=", part)
		}
		if err != nil {
			return r, err
		}
	}
	if !r.Address.IsValid() && r.Select.IsZero() {
		return r, errors.New("want an address, or a selector: name=, label= or network=")
	}
	return r, nil
}

// FormatReal writes a real server as Real reads it.
func FormatReal(r model.RealServer) string {
	text := r.String()
	if !r.Select.IsZero() {
		port := r.Port
		r.Port = 0
		if text = r.String(); port != 0 {
			text += fmt.Sprintf(",port=%d", port)
		}
	}
	if r.Weight != 1 {
		text += fmt.Sprintf(",weight=%d", r.Weight)
	}
	if r.State != "" {
		text += ",state=" + string(r.State)
	}
	return text
}

// cutPort cuts :PORT off the end of a selector. Without one it returns before.
func cutPort(value string, before uint16) (string, uint16) {
	i := strings.LastIndexByte(value, ':')
	if i < 0 {
		return value, before
	}
	p, err := port(value[i+1:])
	if err != nil {
		return value, before
	}
	return value[:i], p
}

func port(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("port %q: want 1 to 65535", text)
	}
	return uint16(n), nil
}

// addressPort parses ADDRESS or ADDRESS:PORT. An IPv6 address with a port must be
// in brackets.
func addressPort(text string) (netip.Addr, uint16, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return a, 0, nil
	}
	if at, err := netip.ParseAddrPort(text); err == nil && at.Port() != 0 {
		return at.Addr(), at.Port(), nil
	}
	if a, err := Host(text); err == nil {
		return a, 0, nil
	}
	return netip.Addr{}, 0, errors.New("want an address, with or without a port, e.g. 10.0.0.2:8080 or [fd00::2]:8080")
}

// Sorry parses the sorry server of a service. "" means none.
func Sorry(text string) (netip.AddrPort, error) {
	if text == "" {
		return netip.AddrPort{}, nil
	}
	a, p, err := addressPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("sorry server %q: %w", text, err)
	}
	return netip.AddrPortFrom(a, p), nil
}

// FormatSorry writes a sorry server as Sorry reads it.
func FormatSorry(at netip.AddrPort) string {
	if at.Port() == 0 {
		return model.RealServer{Address: at.Addr()}.String()
	}
	return at.String()
}
