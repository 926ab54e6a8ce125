package h2

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// setting is the length of a parameter and its value.
const setting = 6

// maxSettings is how many parameters net/http accepts in a frame.
const maxSettings = 100

// settings leaves the values out that a later one of the same frame replaces.
func (c *Conn) settings(length int) {
	c.passed = header + length
	payload := c.buf[c.r+header : c.r+header+length]
	if length%setting != 0 || length > maxSettings*setting {
		return
	}
	last := map[uint16]int{}
	for i := 0; i < length; i += setting {
		s := parseSetting(payload[i:])
		if s.Valid() != nil {
			return // an error, also if it is replaced
		}
		last[uint16(s.ID)] = i
	}
	if len(last)*setting == length {
		return
	}
	kept := 0
	for i := 0; i < length; i += setting {
		if last[binary.BigEndian.Uint16(payload[i:])] == i {
			kept += copy(payload[kept:], payload[i:i+setting])
		}
	}
	// The frame keeps its place: what follows it moves.
	end := c.r + header + length
	c.w -= length - kept
	copy(c.buf[end-(length-kept):c.w], c.buf[end:])
	c.setLength(kept)
}

func parseSetting(b []byte) http2.Setting {
	return http2.Setting{ID: http2.SettingID(binary.BigEndian.Uint16(b)), Val: binary.BigEndian.Uint32(b[2:])}
}
