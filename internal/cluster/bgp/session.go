package bgp

import (
	"strings"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// session is the state of the connection to a router.
type session struct {
	router
	// state is that of RFC 4271 8.2.2, e.g. "established".
	state string
	// since is when the session was established; zero if it is not.
	since time.Time
	// bfd is "up" or "down"; empty without BFD.
	bfd string
}

// sessionOf returns the state of the session with a router.
func sessionOf(r router, p *api.Peer) session {
	s := session{router: r, state: strings.ToLower(strings.TrimPrefix(p.GetState().GetSessionState().String(),
		"SESSION_STATE_"))}
	if up := p.GetTimers().GetState().GetUptime(); s.state == established && up != nil {
		s.since = up.AsTime()
	}
	switch {
	case !r.BFD:
	case p.GetState().GetBfdState().GetSessionState() == api.BfdSessionState_BFD_SESSION_STATE_UP:
		s.bfd = "up"
	default:
		s.bfd = "down"
	}
	return s
}

// established is the state of a session over which addresses are announced.
const established = "established"
