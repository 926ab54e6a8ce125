package gateway

import (
	"slices"

	"fairlead/internal/gateway/tlsconfig"
)

// Handover is what a gateway gives to the one that replaces it.
type Handover struct {
	Tickets tlsconfig.TicketKeys
	// Down has the services' servers that failed their last check, so that a new gateway sends
	// them no request before its first check.
	Down []string
}

// Handover returns what the next gateway needs.
func (g *Gateway) Handover() Handover {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Handover{Tickets: g.tickets.Get()}
	for name, service := range g.kept.services {
		s.Down = append(s.Down, service.state.Down(name)...)
	}
	slices.Sort(s.Down)
	return s
}

// Inherit takes what an earlier gateway has given. Call it before the first Apply.
func (g *Gateway) Inherit(s Handover) {
	g.tickets.Set(s.Tickets)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.services.Inherit(s.Down)
}

// Objects returns all objects with their states.
func (g *Gateway) Objects() RawData { return g.rawData() }
