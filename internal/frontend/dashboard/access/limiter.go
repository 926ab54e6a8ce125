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
	// maxAddresses is how many addresses are remembered. When there are more, the one whose window began first is
	// forgotten, so that hosts with many addresses cannot hold up others.
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

// prefixOf returns what an address is counted as: an IPv4 address, or the /64 of an IPv6 address.
func prefixOf(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	bits, addr := 64, at.Addr().Unmap().WithZone("")
	if addr.Is4() {
		bits = 32
	}
	p, _ := addr.Prefix(bits) // the length is valid
	return p
}

// pass notes an attempt of an address with a right or a wrong token. It reports false if too many wrong ones came
// before.
func (l *limiter) pass(remote string, right bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := prefixOf(remote)
	a := l.wrong[p]
	if time.Since(a.since) > window {
		a = attempts{since: time.Now()}
	}
	if a.n >= maxWrong {
		return false
	}
	if !right {
		a.n++
		l.wrong[p] = a
		l.limit()
	}
	return true
}

// limit forgets the address whose window began first, if there are too many. l.mu is held.
func (l *limiter) limit() {
	if len(l.wrong) <= maxAddresses {
		return
	}
	var first netip.Prefix
	var began time.Time
	for p, a := range l.wrong {
		if began.IsZero() || a.since.Before(began) {
			first, began = p, a.since
		}
	}
	delete(l.wrong, first)
}
