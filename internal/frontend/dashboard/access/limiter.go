package access

import (
	"net/netip"
	"sync"
	"time"
)

// The limits of wrong tokens.
const (
	// maxWrong is how many an address may send in window.
	maxWrong = 5
	window   = time.Minute
	// maxAddresses is how many addresses are remembered. When there are more, all others share one limit.
	maxAddresses = 1024
)

// limiter slows down those who guess tokens. It is safe for concurrent use.
type limiter struct {
	mu    sync.Mutex
	wrong map[netip.Prefix]attempts
}

// attempts are the wrong tokens since a time.
type attempts struct {
	n     int
	since time.Time
}

func newLimiter() *limiter { return &limiter{wrong: map[netip.Prefix]attempts{}} }

// of returns what an address is counted as: an IPv4 address, or the /64 of an IPv6 address.
func (l *limiter) of(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	bits, addr := 64, at.Addr().Unmap().WithZone("")
	if addr.Is4() {
		bits = 32
	}
	p, _ := addr.Prefix(bits) // the length is valid
	if _, known := l.wrong[p]; !known && len(l.wrong) >= maxAddresses {
		return netip.Prefix{}
	}
	return p
}

// allow reports whether an address may send another token.
func (l *limiter) allow(remote string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, a := range l.wrong {
		if time.Since(a.since) > window {
			delete(l.wrong, p)
		}
	}
	return l.wrong[l.of(remote)].n < maxWrong
}

// failed counts a wrong token.
func (l *limiter) failed(remote string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.of(remote)
	a := l.wrong[p]
	if a.n == 0 {
		a.since = time.Now()
	}
	a.n++
	l.wrong[p] = a
}
