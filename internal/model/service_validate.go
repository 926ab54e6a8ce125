package model

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"time"
)

// The limits of a virtual service.
const (
	// MaxFrontends limits the number of frontends (addresses times ports) of one
	// service.
	MaxFrontends = 1024
	// MaxReals limits the number of its real servers.
	MaxReals = 4096
	// MaxWeight limits the weight of a real server, as IPVS does.
	MaxWeight = 65535
)

// validateServices returns all mistakes of the virtual services, and the frontends
// that two services, or a service and a publish, have in common.
func (s State) validateServices() []error {
	var errs []error
	names := map[string]bool{}
	owners := map[Frontend]string{}
	for _, v := range s.Services {
		if names[v.Name] {
			errs = append(errs, fmt.Errorf("service %s: this name is used twice: rename one", v.Name))
		}
		names[v.Name] = true
		if err := v.Validate(); err != nil {
			errs = append(errs, wrap("service", v.Name, err))
			continue
		}
		for _, f := range v.Frontends() {
			if owner, taken := owners[f]; taken && owner != v.Name {
				errs = append(errs,
					fmt.Errorf("service %s: %s already belongs to service %s: choose another address or port", v.Name,
						f, owner))
				break
			}
			owners[f] = v.Name
		}
		errs = append(errs, s.published(v))
	}
	return errs
}

// published returns an error if a publish has a frontend of the service. A service
// that another host balances may share its frontends with publishes. With ForwardLocal, a
// publish is then the server behind it.
func (s State) published(v VirtualService) error {
	for _, p := range s.Publishes {
		if !v.Balances() || p.Proto != v.Proto || !slices.ContainsFunc(v.Addresses, p.Accepts) ||
			!slices.ContainsFunc(v.Ports, p.HostPorts.Overlaps) {
			continue
		}
		return fmt.Errorf("service %s: publish %s already uses this address and port: choose another address or port, or give the publish another host address", v.Name, p)
	}
	return nil
}

// Validate reports all mistakes of the service that can be found without the host
// and the other services.
func (v VirtualService) Validate() error {
	errs := []error{ValidName(v.Name), v.validateFrontends(), v.validateChoices(), v.validateTunnel(),
		v.validateLocal(), v.validateReals(), v.Check.Validate(v.Proto), v.validateOrigin()}
	if v.Interface != "" {
		errs = append(errs, wrap("interface", v.Interface, ValidLink(v.Interface)))
	}
	switch {
	case v.Persistence < 0 || v.Persistence%time.Second != 0 || v.Persistence > 31*24*time.Hour:
		errs = append(errs, fmt.Errorf("persistence %s: want whole seconds, at most 31 days", v.Persistence))
	case v.Drain < 0:
		errs = append(errs, fmt.Errorf("drain %s: want a positive time, or 0 to wait until the flows end", v.Drain))
	case v.Quorum < 0 || v.Quorum > MaxReals:
		errs = append(errs, fmt.Errorf("quorum %d: want 1 to %d real servers", v.Quorum, MaxReals))
	case v.Panic < 0 || v.Panic > 100:
		errs = append(errs, fmt.Errorf("panic %d: want 0 to 100 percent", v.Panic))
	}
	return errors.Join(errs...)
}

// validateOrigin refuses what only the administrator of a host can ask the host for. Whoever can write to the
// store of a cluster can write its services.
func (v VirtualService) validateOrigin() error {
	if v.Origin == FromCluster && v.Check.Type == CheckExec {
		return errors.New("check exec: hosts run no commands for a cluster, because everyone who can write to its etcd " +
			"would be root on all of them: want another check, or a service of each host")
	}
	return nil
}

func (v VirtualService) validateFrontends() error {
	if len(v.Addresses) == 0 || len(v.Ports) == 0 {
		return errors.New("want an address and a port to answer on, e.g. 192.0.2.10:80")
	}
	if v.Proto != TCP && v.Proto != UDP {
		return fmt.Errorf("protocol %q: want tcp or udp", v.Proto)
	}
	if max(len(v.Addresses), len(v.Ports)) > MaxFrontends { // each is compared with all before it
		return fmt.Errorf("it has %d addresses and %d ports or ranges: want at most %d frontends", len(v.Addresses),
			len(v.Ports), MaxFrontends)
	}
	for i, a := range v.Addresses {
		if err := hostAddress(a); err != nil {
			return err
		}
		if slices.Contains(v.Addresses[:i], a) {
			return fmt.Errorf("address %s: it is listed twice", a)
		}
		if err := v.translates(a); err != nil && v.Forward != ForwardLocal {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	n := 0
	for i, r := range v.Ports {
		if r.First == 0 || r.Last < r.First {
			return fmt.Errorf("port %s: want 1 to 65535, the first no greater than the last", r)
		}
		if slices.ContainsFunc(v.Ports[:i], r.Overlaps) {
			return fmt.Errorf("port %s: it is listed twice", r)
		}
		n += r.Len() * len(v.Addresses)
	}
	if n > MaxFrontends {
		return fmt.Errorf("it has %d frontends (addresses times ports): want at most %d", n, MaxFrontends)
	}
	return nil
}

// hostAddress checks a destination address of clients' packets, before or after
// forwarding.
func hostAddress(a netip.Addr) error {
	switch {
	case a.IsLoopback():
		return fmt.Errorf("address %s: packets of clients cannot reach a loopback address: use another address of the host", a)
	case !a.IsValid(), a.Is4In6(), a.Zone() != "", a.IsUnspecified(), a.IsMulticast(),
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("address %s: want a unicast address, IPv4 in IPv4 notation, and IPv6 without a zone", a)
	}
	return nil
}

// translates refuses an address of another family than the service's first address,
// because packets are not translated between families.
func (v VirtualService) translates(a netip.Addr) error {
	if len(v.Addresses) > 0 && a.Is4() != v.Addresses[0].Is4() {
		return fmt.Errorf("its address family differs from that of %s: create one service per family", v.Addresses[0])
	}
	return nil
}

func (v VirtualService) validateChoices() error {
	if all := AllSchedulers(); v.Scheduler != "" && !slices.Contains(all, v.Scheduler) {
		return fmt.Errorf("scheduler %q: want %s", v.Scheduler, OneOf(all))
	}
	switch v.Forward {
	case "", ForwardNAT, ForwardDirect, ForwardTunnel, ForwardLocal:
	default:
		return fmt.Errorf("forward %q: want nat, direct, tunnel or local", v.Forward)
	}
	if all := append(Planes(), PlaneAuto); v.Plane != "" && !slices.Contains(all, v.Plane) {
		return fmt.Errorf("plane %q: want %s", v.Plane, OneOf(all))
	}
	switch v.SourceNAT {
	case "", SourceNATAuto, SourceNATRouted, SourceNATMasqueraded:
	default:
		return fmt.Errorf("source NAT %q: want auto, routed or masqueraded", v.SourceNAT)
	}
	return nil
}

// validateLocal refuses settings that only the host that balances the service can
// have.
func (v VirtualService) validateLocal() error {
	if v.Forward != ForwardLocal {
		return nil
	}
	if v.Interface != "" && v.Interface != Loopback {
		return fmt.Errorf("interface %s: with forward local, the address is on %s, which does not announce it to neighbours: omit the interface", v.Interface, Loopback)
	}
	bare := VirtualService{Name: v.Name, Addresses: v.Addresses, Interface: v.Interface, Ports: v.Ports, Proto: v.Proto,
		Forward: v.Forward, Origin: v.Origin}
	if v.Plane == PlaneAuto {
		bare.Plane = v.Plane
	}
	if !v.Equal(bare) {
		return errors.New("forward local: this host is the real server, and another one balances: leave out all but addresses, ports and protocol")
	}
	return nil
}

func (v VirtualService) validateReals() error {
	if len(v.Reals) > MaxReals {
		return fmt.Errorf("it has %d real servers: want at most %d", len(v.Reals), MaxReals)
	}
	seen := make(map[RealServer]bool, len(v.Reals))
	for _, r := range v.Reals {
		if err := v.validateReal(r); err != nil {
			return fmt.Errorf("real server %s: %w", r, err)
		}
		id := RealServer{Address: r.Address, Port: r.Port, Select: r.Select}
		if seen[id] {
			return fmt.Errorf("real server %s: it is listed twice", r)
		}
		seen[id] = true
	}
	if v.Sorry.IsValid() {
		return wrap("sorry server", v.Sorry.String(),
			v.validateReal(RealServer{Address: v.Sorry.Addr(), Port: v.Sorry.Port()}))
	}
	return nil
}

func (v VirtualService) validateReal(r RealServer) error {
	switch {
	case r.Address.IsValid() && !r.Select.IsZero():
		return errors.New("it has an address and a selector: want one of them")
	case !r.Address.IsValid() && r.Select.IsZero():
		return errors.New("want an address, or a selector (name, label)")
	case r.Weight < 0 || r.Weight > MaxWeight:
		return fmt.Errorf("weight %d: want 0 to %d", r.Weight, MaxWeight)
	case r.State != RealUp && r.State != RealDraining && r.State != RealDown:
		return fmt.Errorf("state %q: want draining, down, or nothing", r.State)
	case (v.Forward == ForwardDirect || v.Forward == ForwardTunnel) && r.Port != 0 && !v.onlyPort(r.Port):
		return fmt.Errorf("port %d: %s forwarding cannot change the client's destination port: omit the port, or set forward to nat", r.Port, v.Forward)
	}
	if r.Select.Name != "" {
		if _, err := path.Match(r.Select.Name, ""); err != nil {
			return fmt.Errorf("name %q: %w", r.Select.Name, err)
		}
	}
	if r.Address.IsValid() {
		if err := hostAddress(r.Address); err != nil {
			return err
		}
		if err := v.translates(r.Address); err != nil {
			return err
		}
		if slices.Contains(v.Addresses, r.Address) && v.Forward != ForwardDirect {
			return errors.New("it is the service's own address")
		}
	}
	return nil
}

func (v VirtualService) onlyPort(port uint16) bool {
	return len(v.Ports) == 1 && v.Ports[0] == Port(port)
}
