package visitor

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"fairlead/internal/lab/website"
)

// Patience is how long a connection may take to open, and a response to arrive in
// full. A visit that waits longer has failed.
const Patience = 30 * time.Second

// fetcher fetches resources over one connection.
type fetcher interface {
	// fetch returns the number of bytes of the body, which it has verified. It calls
	// first when the head of the response has arrived.
	fetch(path string, first func()) (int, error)
	Close() error
}

// tourist has what all visits share.
type tourist struct {
	order  Order
	site   *website.Site
	config *tls.Config
}

// connect opens a connection with a full handshake. The server must choose the
// protocol.
func (t *tourist) connect(protocol string) (*tls.Conn, error) {
	until := time.Now().Add(Patience)
	raw, err := (&net.Dialer{Deadline: until}).Dial("tcp", t.order.Target.String())
	if err != nil {
		return nil, err
	}
	config := t.config.Clone()
	config.NextProtos = []string{protocol}
	conn := tls.Client(raw, config)
	err = conn.SetDeadline(until)
	if err == nil {
		err = conn.Handshake()
	}
	if err == nil && conn.ConnectionState().NegotiatedProtocol != protocol {
		err = fmt.Errorf("the server does not speak %s", protocol)
	}
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return conn, nil
}

// http1 fetches one resource after the other over HTTP/1.1.
type http1 struct {
	*tourist
	conn *tls.Conn
	in   *bufio.Reader
}

func (t *tourist) connect1() (fetcher, error) {
	conn, err := t.connect("http/1.1")
	if err != nil {
		return nil, err
	}
	return &http1{t, conn, bufio.NewReaderSize(conn, 16<<10)}, nil
}

func (h *http1) fetch(path string, first func()) (int, error) {
	if err := h.conn.SetDeadline(time.Now().Add(Patience)); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintf(h.conn, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: fairlead-lab\r\n\r\n", path,
		h.order.Host); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(h.in, nil)
	if err != nil {
		return 0, err
	}
	first()
	return h.verify(path, answer)
}

func (h *http1) Close() error { return h.conn.Close() }

// multiplexed fetches resources over HTTP/2, also several at the same time.
type multiplexed struct {
	*tourist
	client *http.ClientConn
}

func (t *tourist) connect2() (*multiplexed, error) {
	conn, err := t.connect("h2")
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil { // every request has its own
		return nil, errors.Join(err, conn.Close())
	}
	connected := func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	by := &http.Transport{DialTLSContext: connected, ForceAttemptHTTP2: true, DisableCompression: true}
	client, err := by.NewClientConn(context.Background(), "https", net.JoinHostPort(t.order.Host, "443"))
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &multiplexed{t, client}, nil
}

func (m *multiplexed) fetch(path string, first func()) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+m.order.Host+path, nil)
	if err != nil {
		return 0, err
	}
	answer, err := m.client.RoundTrip(ask)
	if err != nil {
		return 0, err
	}
	first()
	return m.verify(path, answer)
}

func (m *multiplexed) Close() error { return m.client.Close() }

// verify reads the body of a response and compares it with that of the resource.
func (t *tourist) verify(path string, answer *http.Response) (n int, err error) {
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("status %d", answer.StatusCode)
	}
	want := t.site.Body(path)
	got := make([]byte, 16<<10)
	for {
		read, err := answer.Body.Read(got)
		if n+read > len(want) || !bytes.Equal(got[:read], want[n:n+read]) {
			return n, errors.New("the body differs from the resource")
		}
		n += read
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return n, err
		}
	}
	if n != len(want) {
		return n, errors.New("the body ends early")
	}
	return n, nil
}
