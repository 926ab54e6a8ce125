package flow

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Service is a virtual service as a plane holds it.
type Service struct {
	kernel.InstalledService
	// Known is what the daemon knows of it; nil where there is none, or where it
	// is somebody else's.
	Known *Known
}

// Known is what the daemon knows of a virtual service.
type Known struct {
	Name      string
	Frontends []model.Frontend
	// Status is as `fairlead service ls` has it, and Problem why it has failed.
	Status, Problem string
	Reals           []Candidate
	// Routed says that real servers elsewhere have this host as their router.
	Routed bool
}

// Candidate is a real server of a virtual service that a flow could go to.
type Candidate struct {
	At netip.AddrPort `json:"at"`
	// Endpoint is the attachment that it is.
	Endpoint string `json:"endpoint,omitempty"`
	Weight   int    `json:"weight"`
	// State and Cause are the daemon's: up, down, draining, drained, sorry; of a
	// server of which only the kernel tells, State is draining or nothing.
	State string `json:"state,omitempty"`
	Cause string `json:"cause,omitempty"`
	// Taken says that the explanation goes on to it.
	Taken bool `json:"taken,omitempty"`
}

// Balance is the choice of a real server, at a hop.
type Balance struct {
	// Service is its name; empty for one that is not ours.
	Service   string          `json:"service,omitempty"`
	Frontend  netip.AddrPort  `json:"frontend"`
	Plane     model.Plane     `json:"plane"`
	Scheduler model.Scheduler `json:"scheduler"`
	Forward   model.Forward   `json:"forward"`
	// Certain says that the flow goes to the candidate that is taken, and to no
	// other; else it is one of those that it may go to.
	Certain    bool        `json:"certain"`
	Candidates []Candidate `json:"candidates"`
}

// Merge joins what the planes hold with what the daemon knows of it.
func Merge(inUse []kernel.InstalledService, known []Known) []Service {
	all := make([]Service, len(inUse))
	for i, h := range inUse {
		all[i].InstalledService = h
		n := slices.IndexFunc(known, func(k Known) bool {
			return h.Service == k.Name || h.Service == "" && slices.ContainsFunc(k.Frontends, func(f model.Frontend) bool { return all[i].answers(f.Proto, f.At) })
		})
		if n >= 0 {
			all[i].Known, all[i].Service = &known[n], known[n].Name
		}
	}
	return all
}

// answers reports whether it has the frontend.
func (s Service) answers(proto model.Proto, at netip.AddrPort) bool {
	return s.Proto == proto && slices.Contains(s.Frontends.List(), at)
}

// String is what it is called.
func (s Service) String() string {
	if s.Service == "" {
		return "a service that is not ours"
	}
	return "service " + s.Service
}

// choice is a real server that was chosen.
type choice struct {
	Service
	plan.Backend
	at      netip.AddrPort // Backend.At with the port that is dialled there
	balance *Balance
}

// sorry reports whether it is the sorry server.
func (c choice) sorry() bool {
	return slices.ContainsFunc(c.balance.Candidates, func(o Candidate) bool { return o.Taken && o.State == "sorry" })
}

// choose chooses a real server for a client's flow, as the plane would or as one
// of those that it might; false where nobody is to be chosen. The balance tells
// of all.
func (s Service) choose(client, host, prefer netip.AddrPort) (c choice, somebody bool) {
	backends := s.Backends.List()
	c = choice{Service: s, balance: &Balance{Service: s.Service, Frontend: host, Plane: s.Plane, Scheduler: s.Scheduler, Forward: s.Forward}}
	taken, certain := -1, false
	if i, known := s.Chooses(client, host); known {
		taken, certain = i, true
	}
	open := 0
	for i, b := range backends {
		if b.Draining || b.Weight == 0 {
			continue
		}
		open++
		if taken < 0 || !certain && port(b, host) == prefer {
			taken = i
		}
	}
	c.balance.Certain = certain || open < 2
	for i, b := range backends {
		c.balance.Candidates = append(c.balance.Candidates, s.candidate(b, host, i == taken))
	}
	c.balance.Candidates = append(c.balance.Candidates, s.others(host, backends)...)
	if taken < 0 {
		return c, false
	}
	c.Backend, c.at = backends[taken], port(backends[taken], host)
	return c, true
}

// port is where a real server is asked by who has dialled the host.
func port(b plan.Backend, host netip.AddrPort) netip.AddrPort {
	return model.RealServer{Address: b.At.Addr(), Port: b.At.Port()}.At(host.Port())
}

// candidate tells of a real server that the plane has.
func (s Service) candidate(b plan.Backend, host netip.AddrPort, taken bool) Candidate {
	c := Candidate{At: port(b, host), Weight: int(b.Weight), Taken: taken}
	if b.Draining {
		c.State = "draining"
	}
	if k, ok := s.known(c.At, host); ok {
		c.Endpoint, c.Weight, c.State, c.Cause = k.Endpoint, k.Weight, k.State, k.Cause
	}
	return c
}

func (s Service) known(at, host netip.AddrPort) (Candidate, bool) {
	if s.Known == nil {
		return Candidate{}, false
	}
	for _, k := range s.Known.Reals {
		if port(plan.Backend{At: k.At}, host) == at {
			return k, true
		}
	}
	return Candidate{}, false
}

// others are the real servers that the daemon knows and the plane has not, as
// those that are down.
func (s Service) others(host netip.AddrPort, backends []plan.Backend) []Candidate {
	if s.Known == nil {
		return nil
	}
	var all []Candidate
	for _, k := range s.Known.Reals {
		k.At = port(plan.Backend{At: k.At}, host)
		of := k.At.Addr().Is4() == host.Addr().Is4()
		if of && !slices.ContainsFunc(backends, func(b plan.Backend) bool { return port(b, host) == k.At }) {
			all = append(all, k)
		}
	}
	return all
}

// among says of how many the real server is one.
func (c choice) among() string {
	n := 0
	for _, b := range c.Backends.List() {
		if !b.Draining && b.Weight > 0 {
			n++
		}
	}
	switch {
	case c.sorry():
		return "the sorry server"
	case n < 2:
		return "the only one that takes new flows"
	case c.balance.Certain:
		return fmt.Sprintf("of %d, as %s has it", n, c.Scheduler)
	}
	return fmt.Sprintf("say, one of %d by %s", n, c.Scheduler)
}
