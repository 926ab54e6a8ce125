package gateway

import (
	"crypto/sha256"
	"encoding/hex"
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
		for at, c := range service.conditions {
			if c.Down.Load() {
				s.Down = append(s.Down, digest(name, at.key))
			}
		}
	}
	slices.Sort(s.Down)
	return s
}

// Inherit takes what an earlier gateway has given. Call it before the first Apply.
func (g *Gateway) Inherit(s Handover) {
	g.tickets.Set(s.Tickets)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wereDown = map[string]bool{}
	for _, d := range s.Down {
		g.wereDown[d] = true
	}
}

// digest names a server of a service without the secrets that its key has.
func digest(service, key string) string {
	sum := sha256.Sum256([]byte(service + " " + key))
	return hex.EncodeToString(sum[:8])
}

// Objects returns all objects with their states.
func (g *Gateway) Objects() RawData { return g.rawData() }
