package h2

import (
	"encoding/binary"
	"time"

	"fairlead/internal/gateway/goroutine"

	"golang.org/x/net/http2"
)

// Read implements net.Conn. The library calls it on a goroutine that does not recover.
func (c *Conn) Read(p []byte) (n int, err error) {
	err = errFault // if it panics
	defer goroutine.Recover("read a connection of HTTP/2", func() { _ = c.Conn.Close() })
	n, err = c.readFrames(p)
	return n, err
}

// readFrames reads what may pass.
func (c *Conn) readFrames(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for c.passed == 0 {
		if err := c.inspect(); err != nil {
			return 0, err
		}
	}
	if c.r == c.w {
		// Only a payload that is not inspected has passed before it was read.
		n, err := c.Conn.Read(p[:min(len(p), c.passed)])
		c.passed -= n
		return n, err
	}
	n := copy(p, c.buf[c.r:min(c.w, c.r+c.passed)])
	c.r, c.passed = c.r+n, c.passed-n
	if c.r == c.w {
		c.release()
	}
	return n, nil
}

// inspect decides how many bytes may pass.
func (c *Conn) inspect() error {
	if !c.inspected {
		if err := c.need(len(http2.ClientPreface)); err != nil {
			return err
		}
		if string(c.buf[c.r:c.r+len(http2.ClientPreface)]) != http2.ClientPreface {
			return errPreface
		}
		c.inspected, c.passed = true, len(http2.ClientPreface)
		return nil
	}
	if err := c.need(header); err != nil {
		return err
	}
	length := int(binary.BigEndian.Uint32(c.buf[c.r:]) >> 8)
	kind := http2.FrameType(c.buf[c.r+3])
	c.passed = header + length
	c.count(kind)
	if length > maxFrame || kind != http2.FrameHeaders && kind != http2.FrameSettings {
		return nil
	}
	c.passed = 0
	if err := c.need(header + length); err != nil {
		return err
	}
	if kind == http2.FrameHeaders {
		c.hear()
		c.headers(length)
	} else {
		c.settings(length)
	}
	return nil
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
