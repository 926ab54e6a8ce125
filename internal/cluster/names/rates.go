package names

import (
	"net/netip"
	"sync"
	"time"
)

// A client may ask perSecond questions a second in the long run, and burst at once.
const (
	perSecond = 200
	burst     = 400
)

// maxClients is how many clients a network's server counts at a time. If more ask, all counts start
// anew.
const maxClients = 1 << 16

// rates limits the questions of each client. Its method may be called concurrently.
type rates struct {
	mu      sync.Mutex
	clients map[netip.Addr]budget
}

// budget is how many questions a client could ask at a time.
type budget struct {
	at   time.Time
	left float64
}

func newRates() *rates { return &rates{clients: map[netip.Addr]budget{}} }

// allow reports whether the client may ask now, and counts the question.
func (r *rates) allow(client netip.Addr, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, known := r.clients[client]
	if !known {
		if len(r.clients) >= maxClients {
			clear(r.clients)
		}
		b.left = burst
	} else {
		b.left = min(burst, b.left+now.Sub(b.at).Seconds()*perSecond)
	}
	b.at = now
	allowed := b.left >= 1
	if allowed {
		b.left--
	}
	r.clients[client] = b
	return allowed
}
