package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// messages are consecutive netlink messages in one buffer.
type messages struct {
	buf []byte
	// last is the offset of the last message.
	last int
}

// message adds a message with a netfilter header. The function body writes its
// attributes.
func (m *messages) message(kind, flags uint16, header [nfgenLen]byte, body func()) {
	m.last = len(m.buf)
	at := m.last
	m.buf = append(m.buf, make([]byte, unix.SizeofNlMsghdr)...)
	m.buf = append(m.buf, header[:]...)
	body()
	binary.NativeEndian.PutUint32(m.buf[at:], uint32(len(m.buf)-at))
	binary.NativeEndian.PutUint16(m.buf[at+4:], kind)
	binary.NativeEndian.PutUint16(m.buf[at+6:], flags)
}

// begin writes the header of an attribute, and returns its offset.
func (m *messages) begin(kind uint16) (at int) {
	at = len(m.buf)
	m.buf = append(m.buf, 0, 0, 0, 0)
	binary.NativeEndian.PutUint16(m.buf[at+2:], kind)
	return at
}

// end writes the length of the attribute that begins at the offset, and pads it.
func (m *messages) end(at int) {
	binary.NativeEndian.PutUint16(m.buf[at:], uint16(len(m.buf)-at))
	for len(m.buf)%unix.NLA_ALIGNTO != 0 {
		m.buf = append(m.buf, 0)
	}
}

func (m *messages) attr(kind uint16, data []byte) {
	at := m.begin(kind)
	m.buf = append(m.buf, data...)
	m.end(at)
}

// text adds a NUL-terminated string.
func (m *messages) text(kind uint16, s string) {
	at := m.begin(kind)
	m.buf = append(m.buf, s...)
	m.buf = append(m.buf, 0)
	m.end(at)
}

// number adds a 32-bit number in network byte order.
func (m *messages) number(kind uint16, n uint32) {
	at := m.begin(kind)
	m.buf = binary.BigEndian.AppendUint32(m.buf, n)
	m.end(at)
}

func (m *messages) nest(kind uint16, body func()) {
	at := m.begin(kind | unix.NLA_F_NESTED)
	body()
	m.end(at)
}
