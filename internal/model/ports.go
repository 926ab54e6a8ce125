package model

import "fmt"

// collisions returns an error for each publish that answers where an earlier
// one does. It looks a port's earlier publishes up instead of comparing every
// pair, because a host may have tens of thousands.
func (s State) collisions() []error {
	type port struct {
		proto Proto
		port  int
	}
	var errs []error
	held := map[port][]int{}
	for i, p := range s.Publishes {
		clash := -1
		for n := int(p.HostPorts.First); n <= int(p.HostPorts.Last); n++ {
			at := port{p.Proto, n}
			for _, j := range held[at] {
				if p.Collides(s.Publishes[j]) {
					clash = j
				}
			}
			held[at] = append(held[at], i)
		}
		if clash >= 0 {
			o := s.Publishes[clash]
			errs = append(errs, &PortTakenError{Publish: p, Owner: "endpoint " + o.Endpoint + " (" + o.String() + ")"})
		}
	}
	return errs
}

// ownPorts returns an error for each publish via socket of a port for which
// the workload has a host port already: it binds the port once.
func (s State) ownPorts() []error {
	type port struct {
		endpoint string
		proto    Proto
		v4       bool
		port     int
	}
	var errs []error
	held := map[port]Publish{}
	for _, p := range s.Publishes {
		if p.Via != ViaSocket {
			continue
		}
		var clash *Publish
		for n := int(p.Ports.First); n <= int(p.Ports.Last); n++ {
			for _, v4 := range []bool{true, false} {
				at := port{p.Endpoint, p.Proto, v4, n}
				if o, taken := held[at]; taken && p.Answers(v4) {
					clash = &o
				} else if p.Answers(v4) {
					held[at] = p
				}
			}
		}
		if clash != nil {
			errs = append(errs, fmt.Errorf("publish %s: port %s is published already (%s), and a workload binds it once: leave one out, or publish via another way", p, p.Ports, clash))
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
