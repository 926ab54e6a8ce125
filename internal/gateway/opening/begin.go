package opening

import (
	"bytes"
	"io"
	"net"
)

// Kind is what a client begins with.
type Kind int

// The kinds.
const (
	Other Kind = iota
	TLS
	// HTTP2 is a client of HTTP/2 without TLS.
	HTTP2
	// PostgreSQL is a client that asks its server for TLS before the handshake.
	PostgreSQL
)

// Requests of PostgreSQL's protocol (documentation, "Message Formats"): a length of 8 bytes
// and a code.
var (
	sslRequest    = []byte{0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f}
	gssEncRequest = []byte{0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x30}
)

// preface is how HTTP/2 begins (RFC 9113, 3.4); no method of HTTP/1.1 does.
var preface = []byte("PRI")

// SSLRequest returns PostgreSQL's request for TLS.
func SSLRequest() []byte { return bytes.Clone(sslRequest) }

// Accepted is the server's answer to SSLRequest if it accepts TLS.
const Accepted = 'S'

// PeekKind waits for the first byte, and for more as long as they may be those of HTTP/2 or
// PostgreSQL. It leaves the bytes in the socket.
func PeekKind(c net.Conn) (Kind, error) {
	p, err := newPeeker(c, len(sslRequest))
	if err != nil {
		return Other, err
	}
	for n := 1; ; {
		b, err := p.atLeast(n)
		switch {
		case err == io.EOF && n > 1:
			return Other, nil
		case err != nil:
			return Other, err
		case b[0] == handshake:
			return TLS, nil
		case bytes.Equal(b, sslRequest), bytes.Equal(b, gssEncRequest):
			return PostgreSQL, nil
		case bytes.HasPrefix(b, preface):
			return HTTP2, nil
		case !bytes.HasPrefix(sslRequest, b) && !bytes.HasPrefix(gssEncRequest, b) && !bytes.HasPrefix(preface, b):
			return Other, nil
		}
		n = len(b) + 1
	}
}

// AcceptPostgreSQL answers the requests of a client of PostgreSQL until it begins with the
// handshake. GSSAPI encryption is refused, after which the client may ask for TLS.
func AcceptPostgreSQL(c net.Conn) error {
	for range 2 {
		request := make([]byte, len(sslRequest))
		if _, err := io.ReadFull(c, request); err != nil {
			return err
		}
		if bytes.Equal(request, sslRequest) {
			_, err := c.Write([]byte{Accepted})
			return err
		}
		if !bytes.Equal(request, gssEncRequest) {
			return ErrNoHello
		}
		if _, err := c.Write([]byte{'N'}); err != nil {
			return err
		}
	}
	return ErrNoHello
}
