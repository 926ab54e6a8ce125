package gateway

import (
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
	return Handover{Tickets: g.tickets.Get(), Down: g.objects.CheckedDown()}
}

// Inherit takes what an earlier gateway has given. Call it before the first Apply.
func (g *Gateway) Inherit(s Handover) {
	g.tickets.Set(s.Tickets)
	g.objects.Inherit(s.Down)
}
