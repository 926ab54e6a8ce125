package opening

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/pires/go-proxyproto"
)

// Conn is a TCP connection whose addresses a PROXY header has replaced.
type Conn struct {
	*net.TCPConn
	remote, local net.Addr
}

// RemoteAddr returns the address of the client in front of the proxy.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// LocalAddr returns the address that the client has connected to.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// Plain returns the TCP connection, which the kernel can splice.
func (c *Conn) Plain() *net.TCPConn { return c.TCPConn }

const (
	// mostLine is the longest header of version 1, mostHeader that of version 2 which is
	// accepted: there is room for what load balancers add, such as a certificate.
	mostLine, mostHeader = 107, 4096
	// fixedHeader is how version 2 begins: a signature, version, family and length.
	fixedHeader = 16
)

var errHeader = errors.New("read the PROXY header: it is too long or incomplete")

// ReadHeader waits for the client's first bytes. If they are a PROXY header of version 1 or 2
// (https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt), it reads that, and the result
// has its addresses; a header without addresses (LOCAL, UNKNOWN) and other bytes leave the
// connection as it is. Only peers that the user trusts may be asked for a header: it can claim
// any address. The connection is returned with an error, too.
func ReadHeader(c net.Conn) (net.Conn, error) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c, nil
	}
	p, err := newPeeker(c, fixedHeader)
	if err != nil {
		return c, err
	}
	size, err := headerSize(p)
	if err != nil || size == 0 {
		return c, err
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(c, b); err != nil {
		return c, fmt.Errorf("read the PROXY header: %w", err)
	}
	header, err := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(b), size))
	if err != nil {
		return c, fmt.Errorf("read the PROXY header: %w", err)
	}
	from, to, ok := header.TCPAddrs()
	if header.Command.IsLocal() || !ok {
		return c, nil
	}
	return &Conn{tcp, from, to}, nil
}

// headerSize returns the size of the header, 0 if there is none.
func headerSize(p *peeker) (int, error) {
	for n := 1; ; {
		b, err := p.atLeast(n)
		switch {
		case err == io.EOF && len(b) > 0:
			return 0, nil
		case err != nil:
			return 0, err
		case bytes.HasPrefix(b, proxyproto.SIGV1):
			return lineSize(p)
		case bytes.HasPrefix(b, proxyproto.SIGV2):
			return binarySize(p)
		case !bytes.HasPrefix(proxyproto.SIGV1, b) && !bytes.HasPrefix(proxyproto.SIGV2, b):
			return 0, nil
		}
		n = len(b) + 1
	}
}

// lineSize returns the size of a header of version 1, which is one line.
func lineSize(p *peeker) (int, error) {
	if len(p.buf) < mostLine {
		p.buf = make([]byte, mostLine)
	}
	for n := 1; ; {
		b, err := p.atLeast(n)
		if err != nil {
			return 0, err
		}
		if end := bytes.IndexByte(b, '\n'); end >= 0 {
			return end + 1, nil
		}
		if n = len(b) + 1; n > mostLine {
			return 0, errHeader
		}
	}
}

// binarySize returns the size of a header of version 2.
func binarySize(p *peeker) (int, error) {
	b, err := p.atLeast(fixedHeader)
	if err != nil {
		return 0, err
	}
	size := fixedHeader + int(b[14])<<8 + int(b[15])
	if size > mostHeader {
		return 0, errHeader
	}
	return size, nil
}

// Header returns the PROXY header of the version for a connection from a client. It has no
// addresses if those are of different families.
func Header(version int, c net.Conn) ([]byte, error) {
	b, err := proxyproto.HeaderProxyFromAddrs(byte(version), c.RemoteAddr(), c.LocalAddr()).Format()
	if err == nil {
		return b, nil
	}
	return (&proxyproto.Header{Version: byte(version), Command: proxyproto.LOCAL,
		TransportProtocol: proxyproto.UNSPEC}).Format()
}
