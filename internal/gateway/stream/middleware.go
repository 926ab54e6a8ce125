package stream

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"fairlead/internal/gateway/tunnel"
)

// Prefixes parses addresses and prefixes.
func Prefixes(texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if addr, e := netip.ParseAddr(text); e == nil {
			addr = addr.Unmap()
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is neither an IP address nor a prefix such as 10.0.0.0/8", text)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// Contain reports whether one of the prefixes has the address.
func Contain(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// AllowList passes connections of clients on whose addresses are in the prefixes, and resets
// those of others.
func AllowList(prefixes []netip.Prefix, next Handler) Handler {
	return handlerFunc{next, func(ctx context.Context, c *Client) {
		if !Contain(prefixes, c.Address) {
			tunnel.Reset(c.Conn)
			return
		}
		next.Serve(ctx, c)
	}}
}

// Limiter counts the connections of each client's address. It outlives configurations.
type Limiter struct {
	mu   sync.Mutex
	open map[netip.Addr]int64
}

// NewLimiter returns a limiter without connections.
func NewLimiter() *Limiter { return &Limiter{open: map[netip.Addr]int64{}} }

// Limit passes a client's connections on as long as it has no more than the number at the same
// time, and resets further ones.
func (l *Limiter) Limit(most int64, next Handler) Handler {
	return handlerFunc{next, func(ctx context.Context, c *Client) {
		if !l.take(c.Address, most) {
			tunnel.Reset(c.Conn)
			return
		}
		defer l.give(c.Address)
		next.Serve(ctx, c)
	}}
}

func (l *Limiter) take(addr netip.Addr, most int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[addr] >= most {
		return false
	}
	l.open[addr]++
	return true
}

func (l *Limiter) give(addr netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[addr]--; l.open[addr] == 0 {
		delete(l.open, addr)
	}
}

// handlerFunc is a handler before another.
type handlerFunc struct {
	next  Handler
	serve func(ctx context.Context, c *Client)
}

func (h handlerFunc) Serve(ctx context.Context, c *Client) { h.serve(ctx, c) }
func (h handlerFunc) Available() bool                      { return up(h.next) }
