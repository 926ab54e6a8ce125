package h2

import (
	"encoding/binary"
	"time"

	"golang.org/x/net/http2"
)

// The resets that a client may send: as many at once, and then so many per second, as in nghttp2
// (CVE-2023-44487). More are accepted from a client that lets half of its requests complete.
const (
	resetsAtOnce    = 1000
	resetsPerSecond = 33
)

// Resets counts the requests of a connection and those that its client resets.
type Resets struct {
	requests, all int
	// spent is how many of resetsAtOnce are used, as of the time at.
	spent float64
	at    time.Time
}

// Request counts a request.
func (r *Resets) Request() { r.requests++ }

// Reset counts a reset, and reports whether there are too many.
func (r *Resets) Reset(now time.Time) bool {
	if r.all++; r.all > 1 {
		r.spent = max(0, r.spent-now.Sub(r.at).Seconds()*resetsPerSecond)
	}
	r.at = now
	r.spent++
	return r.spent > resetsAtOnce && 2*r.all > r.requests
}

// count counts requests and resets by the header of a frame. If there are too many resets, it makes the frame a
// reset of the connection itself, an error for which the server sends GOAWAY (RFC 9113 6.4).
func (c *Conn) count(kind http2.FrameType) {
	stream := c.buf[c.r+5 : c.r+header]
	switch kind {
	case http2.FrameHeaders:
		if id := binary.BigEndian.Uint32(stream); id > c.newest { // else it is a trailer
			c.newest = id
			c.resets.Request()
		}
	case http2.FrameRSTStream:
		if c.resets.Reset(time.Now()) {
			clear(stream)
		}
	}
}

// hear calls heard when the first head is complete. One that goes on in CONTINUATION frames does not count.
func (c *Conn) hear() {
	if c.heard != nil && http2.Flags(c.buf[c.r+4]).Has(http2.FlagHeadersEndHeaders) {
		c.heard()
		c.heard = nil
	}
}
