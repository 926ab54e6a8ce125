package sockets

import (
	"net/netip"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
)

// place is where a listener or a reservation is.
type place struct {
	proto model.Proto
	host  netip.Addr
	ports model.PortRange
}

// covers reports whether all sockets of a configuration are open, so that setting it needs no new port. A reserved
// port can become a listener only while an open listener overlaps it: the proxy makes it one when that is closed
// (bridging, in the engine). Any other must listen before the kernel is changed.
func covers(open, want proxy.Config) bool {
	listening, reserved := map[place]bool{}, map[place]bool{}
	for _, l := range open.Listeners {
		listening[place{l.Proto, l.Host, l.Ports}] = true
	}
	for _, r := range open.Reservations {
		reserved[place{r.Proto, r.Host, r.Ports}] = true
	}
	for _, l := range want.Listeners {
		at := place{l.Proto, l.Host, l.Ports}
		if !listening[at] && !(reserved[at] && overlaps(open.Listeners, l)) {
			return false
		}
	}
	for _, r := range want.Reservations {
		if at := (place{r.Proto, r.Host, r.Ports}); !listening[at] && !reserved[at] {
			return false
		}
	}
	return true
}

func overlaps(all []plan.Listener, with plan.Listener) bool {
	for _, l := range all {
		if l.Overlaps(with) {
			return true
		}
	}
	return false
}
