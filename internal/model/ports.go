package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// maxPorts limits the number of all published ports of one host: all ports of both
// protocols at eight addresses.
const maxPorts = 1 << 20

// tooMany returns an error if more ports are published than maxPorts.
func (s State) tooMany() error {
	ports := 0
	for _, p := range s.Publishes {
		ports += max(p.HostPorts.Len(), p.Ports.Len())
	}
	if ports > maxPorts {
		return fmt.Errorf("publishes: they have %d ports in total: want at most %d", ports, maxPorts)
	}
	return nil
}

// collisions returns errors for publishes that collide with earlier ones. A host
// may have tens of thousands of publishes, each with many ports, so it does not
// compare all pairs. It sorts them by first port, and compares each only with those
// of its address that have the highest last port so far.
func (s State) collisions() []error {
	claims := make(map[int]int) // from a publish to the earlier one that it collides with
	for _, proto := range []Proto{TCP, UDP} {
		for _, v4 := range []bool{true, false} {
			var of []int
			for i, p := range s.Publishes {
				if p.Proto == proto && p.AcceptsFamily(v4) {
					of = append(of, i)
				}
			}
			s.sweep(of, claims)
		}
	}
	var errs []error
	for i, p := range s.Publishes {
		if j, claimed := claims[i]; claimed {
			o := s.Publishes[j]
			errs = append(errs, &PortTakenError{Publish: p, Owner: "endpoint " + o.Endpoint + " (" + o.String() + ")"})
		}
	}
	return errs
}

// sweep finds the collisions among publishes of one protocol and family.
func (s State) sweep(of []int, claims map[int]int) {
	slices.SortStableFunc(of, func(i, j int) int {
		return cmp.Compare(s.Publishes[i].HostPorts.First, s.Publishes[j].HostPorts.First)
	})
	// furthest are the publishes with the highest last port so far: per address,
	// among those for all addresses (the zero address), and among all.
	furthest, whatever := map[netip.Addr]int{}, -1
	further := func(i, than int) bool {
		return than < 0 || s.Publishes[i].HostPorts.Last > s.Publishes[than].HostPorts.Last
	}
	for _, i := range of {
		p := s.Publishes[i]
		at := p.HostAddr
		rivals := []int{}
		if p.AnyAddr() {
			at, rivals = netip.Addr{}, append(rivals, whatever)
		} else {
			for _, a := range []netip.Addr{at, {}} {
				if j, ok := furthest[a]; ok {
					rivals = append(rivals, j)
				}
			}
		}
		for _, j := range rivals {
			if j >= 0 && p.Collides(s.Publishes[j]) {
				claims[max(i, j)] = min(i, j)
			}
		}
		if j, ok := furthest[at]; !ok || further(i, j) {
			furthest[at] = i
		}
		if further(i, whatever) {
			whatever = i
		}
	}
}

// ownPorts returns errors for publishes via socket of ports that the workload
// already has host ports for, because a workload binds each port only once.
func (s State) ownPorts() []error {
	type port struct {
		endpoint string
		proto    Proto
		v4       bool
	}
	of := map[port][]Publish{}
	for _, p := range s.Publishes {
		for _, v4 := range []bool{true, false} {
			if p.Via == ViaSocket && p.AcceptsFamily(v4) {
				of[port{p.Endpoint, p.Proto, v4}] = append(of[port{p.Endpoint, p.Proto, v4}], p)
			}
		}
	}
	var errs []error
	reported := map[string]bool{}
	for _, all := range of {
		slices.SortStableFunc(all, func(p, o Publish) int { return cmp.Compare(p.Ports.First, o.Ports.First) })
		for i := 1; i < len(all); i++ {
			p, o := all[i], all[i-1]
			if p.Ports.Overlaps(o.Ports) && !reported[p.String()] {
				reported[p.String()] = true
				errs = append(errs,
					fmt.Errorf("publish %s: port %s is already published (%s), and a workload binds a port only once: remove one of the publishes, or use another publish mode", p, p.Ports, o))
			}
			if o.Ports.Last > p.Ports.Last {
				all[i] = o // it has a higher last port
			}
		}
	}
	return errs
}

// PortTakenError is the error for a host port that cannot be published because an
// endpoint or a process uses it.
type PortTakenError struct {
	Publish Publish
	// Owner names the user of the port: an endpoint, or a process with its pid.
	Owner string
}

// Error implements error.
func (e *PortTakenError) Error() string {
	return fmt.Sprintf("publish %s: port taken by %s: choose another host port, or stop the owner", e.Publish, e.Owner)
}
