package opening

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"fairlead/internal/gateway/rule"
)

// Hello is what routers see of a ClientHello (RFC 8446, 4.1.2).
type Hello struct {
	// ServerName is in lower case and without a trailing dot; it is empty if the client names
	// none. With Encrypted Client Hello (RFC 9849) it is the public name.
	ServerName string
	// Protocols are those that the client offers (ALPN, RFC 7301).
	Protocols []string
}

const (
	// mostHello is the size of the largest ClientHello in bytes. It fits one record.
	mostHello = 16 << 10
	// mostRecords is how many bytes of records a ClientHello may take.
	mostRecords = 2 * mostHello
	// commonHello has room for what clients send.
	commonHello = 4 << 10

	recordHead    = 5
	handshakeHead = 4
	handshake     = 22
	clientHello   = 1
)

// ErrNoHello is returned for bytes that are no ClientHello.
var ErrNoHello = errors.New("the client sent no valid TLS ClientHello")

// ErrLargeHello is returned for a ClientHello that is above the limits.
var ErrLargeHello = fmt.Errorf("the client sent a TLS ClientHello of more than %d bytes", mostHello)

// PeekHello waits until the ClientHello is complete. It leaves the bytes in the socket.
func PeekHello(c net.Conn) (Hello, error) {
	p, err := newPeeker(c, commonHello)
	if err != nil {
		return Hello{}, err
	}
	for want := recordHead; ; {
		b, err := p.atLeast(want)
		if err != nil {
			return Hello{}, err
		}
		var message []byte
		if message, want, err = assemble(b); err != nil {
			return Hello{}, err
		}
		if want == 0 {
			return parseHello(message)
		}
	}
}

// assemble returns the ClientHello that the records contain. If it is incomplete, it returns
// the number of bytes that are needed to continue.
func assemble(b []byte) (message []byte, want int, err error) {
	for at := 0; ; {
		if at+recordHead > mostRecords {
			return nil, 0, ErrLargeHello
		}
		if len(b) < at+recordHead {
			return nil, at + recordHead, nil
		}
		size := int(b[at+3])<<8 | int(b[at+4])
		if b[at] != handshake || b[at+1] != 3 || size == 0 || size > 1<<14 {
			return nil, 0, ErrNoHello
		}
		end := at + recordHead + size
		message = append(message, b[at+recordHead:min(end, len(b))]...)
		if len(message) >= handshakeHead {
			length := handshakeHead + int(message[1])<<16 + int(message[2])<<8 + int(message[3])
			switch {
			case message[0] != clientHello:
				return nil, 0, ErrNoHello
			case length > mostHello:
				return nil, 0, ErrLargeHello
			case len(message) >= length:
				return message[:length], 0, nil
			}
		}
		if len(b) < end {
			return nil, end, nil
		}
		at = end
	}
}

// errSeen ends the handshake of parseHello.
var errSeen = errors.New("seen")

// parseHello parses the message as a server of crypto/tls does.
func parseHello(message []byte) (Hello, error) {
	var seen *tls.ClientHelloInfo
	record := append([]byte{handshake, 3, 1, byte(len(message) >> 8), byte(len(message))}, message...)
	err := tls.Server(&script{Reader: bytes.NewReader(record)}, &tls.Config{MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			seen = hello
			return nil, errSeen
		}}).Handshake()
	if seen == nil {
		return Hello{}, fmt.Errorf("%w: %w", ErrNoHello, err)
	}
	return Hello{ServerName: rule.CanonicalHost(seen.ServerName), Protocols: slices.Clone(seen.SupportedProtos)}, nil
}

// script is a connection whose client sends the reader's bytes and ignores what it receives.
type script struct{ io.Reader }

func (*script) Write(b []byte) (int, error)      { return len(b), nil }
func (*script) Close() error                     { return nil }
func (*script) LocalAddr() net.Addr              { return nil }
func (*script) RemoteAddr() net.Addr             { return nil }
func (*script) SetDeadline(time.Time) error      { return nil }
func (*script) SetReadDeadline(time.Time) error  { return nil }
func (*script) SetWriteDeadline(time.Time) error { return nil }
