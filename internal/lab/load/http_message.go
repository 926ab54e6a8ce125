package load

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
)

// Host is the host name in all HTTP requests.
const Host = "lab.test"

// maxHead is the greatest head of a request or an answer, in bytes.
const maxHead = 16 << 10

// message is the head of an HTTP/1.1 request or answer (RFC 9112).
type message struct {
	// size is the number of bytes up to and including the empty line.
	size int
	// length is that of the body; -1 if it is not announced.
	length int64
	// last: the connection ends after this message.
	last bool
	// key is the Sec-WebSocket-Key of a request.
	key []byte
}

var (
	emptyLine = []byte("\r\n\r\n")
	lineEnd   = []byte("\r")
)

// parseMessage reads a head from the start of b; ok is false if it is not complete.
func parseMessage(b []byte) (m message, ok bool, err error) {
	end := bytes.Index(b, emptyLine)
	if end < 0 {
		if len(b) >= maxHead {
			return m, false, fmt.Errorf("the head of a message has more than %d bytes", maxHead)
		}
		return m, false, nil
	}
	m = message{size: end + len(emptyLine), length: -1}
	for rest := b[:end]; len(rest) > 0; {
		line := rest
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			line, rest = rest[:i], rest[i+1:]
		} else {
			rest = nil
		}
		if err := m.note(bytes.TrimSuffix(line, lineEnd)); err != nil {
			return m, false, err
		}
	}
	return m, true, nil
}

// note takes what matters from one line of the head.
func (m *message) note(line []byte) error {
	colon := bytes.IndexByte(line, ':')
	if colon < 0 {
		return nil // the first line
	}
	name, value := line[:colon], bytes.TrimSpace(line[colon+1:])
	switch {
	case is(name, "Content-Length"):
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return fmt.Errorf("read Content-Length: %w", err)
		}
		m.length = n
	case is(name, "Transfer-Encoding"):
		return errors.New("a message has no Content-Length but Transfer-Encoding")
	case is(name, "Connection"):
		m.last = is(value, "close")
	case is(name, "Sec-WebSocket-Key"):
		m.key = value
	}
	return nil
}

// is compares two names without regard to case.
func is(name []byte, want string) bool {
	return len(name) == len(want) && bytes.EqualFold(name, []byte(want))
}

// status returns an error if an answer has another status than the wanted one.
func status(head []byte, want string) error {
	const version = "HTTP/1.1 "
	if bytes.HasPrefix(head, []byte(version+want+" ")) {
		return nil
	}
	line, _, _ := bytes.Cut(head, lineEnd)
	return fmt.Errorf("want the answer %s, got %q", want, line)
}

// request returns the head of the workload's requests.
func (s Spec) request() []byte {
	method, further := "GET", ""
	switch {
	case s.Workload == HTTPUp:
		method, further = "POST", fmt.Sprintf("Content-Length: %d\r\n", s.Size)
	case s.Workload == HTTPCRR:
		further = "Connection: close\r\n"
	case s.Workload == WSRR:
		further = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
			"Sec-WebSocket-Key: " + webSocketKey + "\r\n"
	}
	return fmt.Appendf(nil, "%s / HTTP/1.1\r\nHost: %s\r\nUser-Agent: fairlead-lab\r\nAccept: */*\r\n%s\r\n", method,
		Host, further)
}

// answer returns the head of the workload's answers, and the size of their body.
func (s Spec) answer() (head []byte, body int) {
	body = s.Size
	if s.Workload == HTTPUp {
		body = 0
	}
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n",
		body), body
}

// webSocketKey is the client's key, from the example in RFC 6455, 1.3.
const webSocketKey = "dGhlIHNhbXBsZSBub25jZQ=="

// upgrade returns the answer to a WebSocket handshake (RFC 6455, 4.2.2).
func upgrade(key []byte) []byte {
	sum := sha1.Sum(append(key[:len(key):len(key)], "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"...))
	return fmt.Appendf(nil, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
}

// The parts of a short binary WebSocket frame (RFC 6455, 5.2).
const (
	frameBinary = 0x82
	frameMask   = 0x80
	maskSize    = 4
	maxFrame    = 125
)

// frames returns the frame that the client sends, and the one that it gets back. A
// client must mask its frames.
func frames(payload []byte) (sent, got []byte) {
	mask := [maskSize]byte{0x37, 0xfa, 0x21, 0x3d}
	sent = append([]byte{frameBinary, frameMask | byte(len(payload))}, mask[:]...)
	for i, b := range payload {
		sent = append(sent, b^mask[i%maskSize])
	}
	return sent, append([]byte{frameBinary, byte(len(payload))}, payload...)
}

// unmask returns the server's frame for the masked one at the start of b, and the
// size of that; a size of 0 means that it is not complete. It changes b.
func unmask(b []byte) (frame []byte, size int, err error) {
	if len(b) < 2 {
		return nil, 0, nil
	}
	n := int(b[1] &^ frameMask)
	if b[0] != frameBinary || b[1]&frameMask == 0 || n > maxFrame {
		return nil, 0, fmt.Errorf("want a short, masked binary frame, got %x", b[:2])
	}
	size = 2 + maskSize + n
	if len(b) < size {
		return nil, 0, nil
	}
	mask := [maskSize]byte(b[2 : 2+maskSize])
	for i := range n {
		b[2+maskSize+i] ^= mask[i%maskSize]
	}
	// The frame's head moves to where its mask was.
	b[maskSize], b[maskSize+1] = frameBinary, byte(n)
	return b[maskSize:size], size, nil
}
