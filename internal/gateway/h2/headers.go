package h2

import (
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// headers appends a malformed field to the header block of a malformed request. A block that goes on
// in CONTINUATION frames passes as it is.
func (c *Conn) headers(length int) {
	c.passed = header + length
	flags := http2.Flags(c.buf[c.r+4])
	start, end := c.r+header, c.r+header+length
	if flags.Has(http2.FlagHeadersPadded) {
		if length == 0 {
			return
		}
		end -= int(c.buf[start])
		start++
	}
	if flags.Has(http2.FlagHeadersPriority) {
		start += 5
	}
	if start >= end || !flags.Has(http2.FlagHeadersEndHeaders) || length+len(malformedField) > maxFrame ||
		!concernsConnection(c.buf[start:end]) {
		return
	}
	if c.w > c.limit() {
		// A field was appended to a frame before this one.
		end -= c.r
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	}
	copy(c.buf[end+len(malformedField):], c.buf[end:c.w])
	copy(c.buf[end:], malformedField)
	c.w += len(malformedField)
	c.setLength(length + len(malformedField))
}

// transferEncoding is the index of the field in the static table (RFC 7541 Appendix A).
const transferEncoding = 57

// maxName is the length of the longest name that is looked for.
const maxName = len("transfer-encoding")

// concernsConnection returns true if a header block has a literal field that concerns the connection.
// It returns false if the block is malformed: the server finds that out itself.
func concernsConnection(block []byte) bool {
	b := block
	for len(b) > 0 {
		first := b[0]
		bits := 4
		switch {
		case first&0x80 != 0:
			bits = 7
		case first&0x40 != 0:
			bits = 6
		case first&0x20 != 0:
			bits = 5
		}
		index, rest, ok := integer(b, bits)
		if !ok {
			return false
		}
		if b = rest; bits == 7 || bits == 5 {
			continue
		}
		var name, value []byte
		named := index != 0
		if !named {
			if name, b, ok = text(b); !ok {
				return false
			}
		}
		if value, b, ok = text(b); !ok {
			return false
		}
		if named && index == transferEncoding || !named && refused(name, value) {
			return true
		}
	}
	return false
}

// refused returns true if a field must not be in a message of HTTP/2 (RFC 9113 8.2.2).
func refused(name, value []byte) bool {
	switch decode(name) {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return true
	case "te":
		return decode(value) != "trailers"
	}
	return false
}

// decode returns a short string literal with its first byte, or "".
func decode(literal []byte) string {
	_, content, ok := integer(literal, 7)
	switch {
	case !ok || len(content) > maxName:
		return ""
	case literal[0]&0x80 == 0:
		return string(content)
	}
	decoded, err := hpack.HuffmanDecodeToString(content)
	if err != nil {
		return ""
	}
	return decoded
}

// text splits a string literal off, with its length (RFC 7541 5.2).
func text(b []byte) (literal, rest []byte, ok bool) {
	n, content, ok := integer(b, 7)
	if !ok || n > len(content) {
		return nil, nil, false
	}
	end := len(b) - len(content) + n
	return b[:end], b[end:], true
}

// integer splits an integer off (RFC 7541 5.1). Those of more than three bytes are longer than a frame.
func integer(b []byte, bits int) (n int, rest []byte, ok bool) {
	if len(b) == 0 {
		return 0, nil, false
	}
	most := 1<<bits - 1
	if n = int(b[0]) & most; n < most {
		return n, b[1:], true
	}
	for i := 1; i < len(b) && i < 4; i++ {
		n += int(b[i]&0x7f) << (7 * (i - 1))
		if b[i]&0x80 == 0 {
			return n, b[i+1:], true
		}
	}
	return 0, nil, false
}
