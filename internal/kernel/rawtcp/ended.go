package rawtcp

import (
	"fmt"
	"net/netip"
	"sync"

	"fairlead/internal/kernel/conntrack"
)

// Ended counts the TCP connections from clients to one real server that Fairlead
// has reset.
type Ended struct {
	// Frontend is the address that the clients have dialled.
	Frontend, Real netip.AddrPort
	Connections    int
	// Silent counts those whose clients have not answered and may not know yet.
	// They are reset when they next send a packet.
	Silent int
}

// Text says how many connections were reset, for people.
func (e Ended) Text() string {
	text := fmt.Sprintf("%d connections of clients were reset", e.Connections)
	if e.Connections == 1 {
		text = "1 connection of a client was reset"
	}
	if e.Silent > 0 {
		text += fmt.Sprintf("; %d of these clients did not answer, and are reset when they send again", e.Silent)
	}
	return text
}

// endedCounts counts the reset connections that were not reported yet.
type endedCounts struct {
	mu  sync.Mutex
	all map[[2]netip.AddrPort]Ended
}

// add counts reset connections, and how many of them are silent.
func (e *endedCounts) add(flows []conntrack.Flow, silent map[conntrack.Ends]bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == nil {
		e.all = map[[2]netip.AddrPort]Ended{}
	}
	for _, f := range flows {
		at := [2]netip.AddrPort{f.Host, f.Target}
		one := e.all[at]
		one.Frontend, one.Real = f.Host, f.Target
		if one.Connections++; silent[f.Ends()] {
			one.Silent++
		}
		e.all[at] = one
	}
}

// NoteEnded counts connections that another part of Fairlead has reset.
func (h *Handle) NoteEnded(flows []conntrack.Flow) { h.ended.add(flows, nil) }

// TakeEnded returns the counts since its last call, in no particular order. It is
// safe for concurrent use.
func (h *Handle) TakeEnded() []Ended {
	h.ended.mu.Lock()
	defer h.ended.mu.Unlock()
	var all []Ended
	for _, one := range h.ended.all {
		all = append(all, one)
	}
	h.ended.all = nil
	return all
}
