package site

import (
	"testing"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
)

// TestProofOfFamily: over IPv6, a proof fails if fewer bytes were in IPv6 packets than the
// visitors received.
func TestProofOfFamily(t *testing.T) {
	const received = 1000
	for _, c := range []struct {
		family result.Family
		ip     uint64
		fails  bool
	}{{result.IPv4, 0, false}, {result.IPv6, received, false}, {result.IPv6, received - 1, true}} {
		p := ProveFamily(suite.Path{Family: c.family}, Counters{IPv6: c.ip}, received)
		if fails := p != nil && !p.OK; fails != c.fails {
			t.Errorf("family %s, %d bytes: %+v, want a failure: %t", c.family, c.ip, p, c.fails)
		}
	}
}
