package flow

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/inspect"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Service is a virtual service as it is installed in a data plane.
type Service struct {
	inspect.InstalledService
	// Known is what the daemon knows of it. It is nil if no daemon runs, or if
	// another program made the service.
	Known *Known
}

// Known is what the daemon knows of a virtual service.
type Known struct {
	Name      string
	Frontends []model.Frontend
	// Status is the status in `fairlead service ls`. Problem is why the service
	// failed.
	Status, Problem string
	Reals           []Candidate
	// Routed is true if real servers on other machines use this host as their
	// router.
	Routed bool
}

// Candidate is a real server of a virtual service to which a flow could go.
type Candidate struct {
	At netip.AddrPort `json:"at"`
	// Endpoint is the attachment that the real server is.
	Endpoint string `json:"endpoint,omitempty"`
	Weight   int    `json:"weight"`
	// State and Cause are the daemon's: up, down, draining, drained, sorry. If the
	// daemon does not know the server, State is draining or empty.
	State string `json:"state,omitempty"`
	Cause string `json:"cause,omitempty"`
	// Taken is true if the explanation continues to this real server.
	Taken bool `json:"taken,omitempty"`
}

// Balance is the choice of a real server, at a hop.
type Balance struct {
	// Service is its name; empty for a service that Fairlead does not know.
	Service   string          `json:"service,omitempty"`
	Frontend  netip.AddrPort  `json:"frontend"`
	Plane     model.Plane     `json:"plane"`
	Scheduler model.Scheduler `json:"scheduler"`
	Forward   model.Forward   `json:"forward"`
	// Certain is true if the flow goes to the taken candidate. If false, it may
	// also go to another candidate.
	Certain    bool        `json:"certain"`
	Candidates []Candidate `json:"candidates"`
}

// Merge joins the installed services with what the daemon knows of them.
func Merge(inUse []inspect.InstalledService, known []Known) []Service {
	all := make([]Service, len(inUse))
	for i, h := range inUse {
		all[i].InstalledService = h
		n := slices.IndexFunc(known, func(k Known) bool {
			return h.Service == k.Name || h.Service == "" &&
				slices.ContainsFunc(k.Frontends, func(f model.Frontend) bool { return all[i].answers(f.Proto, f.At) })
		})
		if n >= 0 {
			all[i].Known, all[i].Service = &known[n], known[n].Name
		}
	}
	return all
}

// answers reports whether the service has the frontend.
func (s Service) answers(proto model.Proto, at netip.AddrPort) bool {
	return s.Proto == proto && slices.Contains(s.Frontends, at)
}

// String returns "service" and the name.
func (s Service) String() string {
	if s.Service == "" {
		return "a service of another program"
	}
	return "service " + s.Service
}

// choice is the chosen real server.
type choice struct {
	Service
	plan.Backend
	at      netip.AddrPort // Backend.At with the port that is dialled on the server
	balance *Balance
}

// sorry reports whether the sorry server was chosen.
func (c choice) sorry() bool {
	return slices.ContainsFunc(c.balance.Candidates, func(o Candidate) bool { return o.Taken && o.State == "sorry" })
}

// choose chooses the real server for a client's flow that the data plane would
// choose. If that cannot be known, it chooses one of those that it might choose:
// prefer, or the first. It returns false if there is none. The balance lists all
// candidates.
func (s Service) choose(client, host, prefer netip.AddrPort) (c choice, found bool) {
	backends := s.Backends
	c = choice{Service: s, balance: &Balance{Service: s.Service, Frontend: host, Plane: s.Plane, Scheduler: s.Scheduler,
		Forward: s.Forward}}
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

// port returns the address and port of a real server for a client that dialled
// host.
func port(b plan.Backend, host netip.AddrPort) netip.AddrPort {
	return model.RealServer{Address: b.At.Addr(), Port: b.At.Port()}.At(host.Port())
}

// candidate describes a real server of the data plane.
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

// others returns the real servers that the daemon knows but that are not in the
// data plane, e.g. because they are down.
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

// among returns how the real server was chosen, and of how many.
func (c choice) among() string {
	n := 0
	for _, b := range c.Backends {
		if !b.Draining && b.Weight > 0 {
			n++
		}
	}
	switch {
	case c.sorry():
		return "the sorry server"
	case n < 2:
		return "the only one that accepts new flows"
	case c.balance.Certain:
		return fmt.Sprintf("chosen from %d by %s", n, c.Scheduler)
	}
	return fmt.Sprintf("an example: %s chooses one of %d", c.Scheduler, n)
}
