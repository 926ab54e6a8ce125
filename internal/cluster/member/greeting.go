package member

import (
	"encoding/binary"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// helloSize is how much of a connection's first segment is read: the server name is at its beginning.
const helloSize = 1400

// peek returns what a connection has received so far, and leaves it there. It does not wait.
func peek(c net.Conn) []byte {
	from, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := from.SyscallConn()
	if err != nil {
		return nil
	}
	buf, n := make([]byte, helloSize), 0
	failed := raw.Control(func(fd uintptr) {
		n, _, err = unix.Recvfrom(int(fd), buf, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	if failed != nil || err != nil {
		return nil
	}
	return buf[:n]
}

// The types in a ClientHello that serverName knows (RFC 8446, sections 4 and 5.1; RFC 6066, section 3).
const (
	recordHandshake = 22
	clientHello     = 1
	extServerName   = 0
	nameHost        = 0
)

// serverName returns the server name of the ClientHello with which a connection begins. It is empty if there is none
// in these bytes, which may be its beginning only.
func serverName(first []byte) string {
	m := message(first)
	if m.number(1) != recordHandshake {
		return ""
	}
	m.skip(2 + 2) // version and length of the record
	if m.number(1) != clientHello {
		return ""
	}
	m.skip(3 + 2 + 32)  // length, version, random
	m.skip(m.number(1)) // session ID
	m.skip(m.number(2)) // cipher suites
	m.skip(m.number(1)) // compression methods
	for m.skip(2); len(m) > 0; {
		kind, size := m.number(2), m.number(2)
		if kind != extServerName {
			m.skip(size)
			continue
		}
		m.skip(2) // length of the list
		if m.number(1) != nameHost {
			return ""
		}
		if size = m.number(2); size <= len(m) {
			return string(m[:size])
		}
		return ""
	}
	return ""
}

// message is the rest of a message. What is not there is 0.
type message []byte

// number reads a number of one or two bytes.
func (m *message) number(size int) int {
	var buf [2]byte
	copy(buf[2-size:], *m)
	if len(*m) < size {
		buf = [2]byte{}
	}
	m.skip(size)
	return int(binary.BigEndian.Uint16(buf[:]))
}

func (m *message) skip(size int) { *m = (*m)[min(size, len(*m)):] }
