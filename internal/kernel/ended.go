package kernel

import (
	"net/netip"
	"sync"
)

// Ended are the TCP connections of clients to one real server that we have reset.
type Ended struct {
	// Frontend is what the clients have dialled.
	Frontend, Real netip.AddrPort
	Connections    int
	// Silent are those of them whose clients have not answered, and may not know
	// yet: they are reset when they send next.
	Silent int
}

// ended counts what was reset and nobody was told of yet.
type ended struct {
	mu  sync.Mutex
	all map[[2]netip.AddrPort]Ended
}

// add counts connections, and those of them that are silent.
func (e *ended) add(flows []Flow, silent map[Ends]bool) {
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

// TakeEnded returns what was reset since it was asked last, in no order.
func (h *Host) TakeEnded() []Ended {
	h.ended.mu.Lock()
	defer h.ended.mu.Unlock()
	var all []Ended
	for _, one := range h.ended.all {
		all = append(all, one)
	}
	h.ended.all = nil
	return all
}
