package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// maxPorts bounds the ports that are published of one host in all: the whole
// range of both protocols at eight addresses.
const maxPorts = 1 << 20

// tooMany says that more ports are published than a host could hold.
func (s State) tooMany() error {
	ports := 0
	for _, p := range s.Publishes {
		ports += max(p.HostPorts.Len(), p.Ports.Len())
	}
	if ports > maxPorts {
		return fmt.Errorf("publishes: they are of %d ports in all: want at most %d", ports, maxPorts)
	}
	return nil
}

// collisions returns errors for publishes that answer where earlier ones do,
// none if there are no such. In the order of their first ports each has to be
// compared with those of its address that reach furthest: a host may have tens
// of thousands of publishes, and each the whole range of ports.
func (s State) collisions() []error {
	claims := make(map[int]int) // of a publish, the earlier one
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
	// furthest are those that reach furthest so far: of an address, of every
	// address (the zero one), and of whatever address.
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

// ownPorts returns errors for publishes via socket of ports for which the
// workload has host ports already: it binds a port once.
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
	notified := map[string]bool{}
	for _, all := range of {
		slices.SortStableFunc(all, func(p, o Publish) int { return cmp.Compare(p.Ports.First, o.Ports.First) })
		for i := 1; i < len(all); i++ {
			p, o := all[i], all[i-1]
			if p.Ports.Overlaps(o.Ports) && !notified[p.String()] {
				notified[p.String()] = true
				errs = append(errs, fmt.Errorf("publish %s: port %s is published already (%s), and a workload binds it once: leave one out, or publish via another way", p, p.Ports, o))
			}
			if o.Ports.Last > p.Ports.Last {
				all[i] = o // it reaches further
			}
		}
	}
	return errs
}

// PortTakenError says that a host port cannot be published because somebody
// holds it.
type PortTakenError struct {
	Publish Publish
	// Owner names the holder: an endpoint, or a process with its pid.
	Owner string
}

// Error implements error.
func (e *PortTakenError) Error() string {
	return fmt.Sprintf("publish %s: port taken by %s: choose another host port, or stop the owner", e.Publish, e.Owner)
}
