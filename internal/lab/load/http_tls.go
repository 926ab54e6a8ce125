package load

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"time"

	"fairlead/internal/lab/certificate"

	"golang.org/x/sys/unix"
)

// clientTLS is the client's side of TLS. All servers must support X25519: with their
// own preferences some would also make a post-quantum key exchange, and the path's
// cost would depend on it. The certificate is not verified, but its signature is.
func clientTLS(protocol string) *tls.Config {
	return &tls.Config{ServerName: Host, InsecureSkipVerify: true, NextProtos: []string{protocol},
		CurvePreferences: []tls.CurveID{tls.X25519}, SessionTicketsDisabled: true}
}

// connectTLS opens the client's connections with TLS and starts a goroutine for each.
func (j *job) connectTLS(target netip.AddrPort) error {
	if j.spec.Multiplex > 0 {
		return j.connectHTTP2(target)
	}
	for i := range j.spec.Streams {
		v := &secureVisitor{j: j, t: j.newThread(), target: target, out: j.spec.request(),
			in: make([]byte, maxHead+j.spec.Size)}
		visit := v.visit
		if j.spec.Workload == HTTPRR {
			if err := v.dial(); err != nil {
				return err
			}
			visit = v.exchange
		}
		if _, err := visit(); err != nil {
			v.close()
			return err
		}
		v.t.transactions.Add(1)
		j.share(&j.senders, func() error {
			defer v.close()
			return j.transact(v.t, i, visit, false)
		})
	}
	return nil
}

// secureVisitor sends requests with TLS, one after another.
type secureVisitor struct {
	j      *job
	t      *thread
	target netip.AddrPort
	conn   *tls.Conn // nil if there is none
	out    []byte
	in     []byte
}

// dial opens a connection.
func (v *secureVisitor) dial() (err error) {
	v.conn, err = v.j.dialTLS(v.target, "http/1.1")
	return err
}

// dialTLS opens a connection for a protocol. It ends itself some time after the run.
func (j *job) dialTLS(target netip.AddrPort, protocol string) (*tls.Conn, error) {
	plain, err := net.DialTimeout("tcp", target.String(), patience)
	if err != nil {
		return nil, failed("connect", target, err)
	}
	conn := tls.Client(plain, clientTLS(protocol))
	err = conn.SetDeadline(time.Now().Add(j.spec.Warmup + j.spec.Duration + 2*patience))
	if err == nil {
		err = conn.Handshake()
	}
	if err == nil && conn.ConnectionState().NegotiatedProtocol != protocol {
		err = fmt.Errorf("the server does not offer %s", protocol)
	}
	if err != nil {
		return nil, errors.Join(failed("begin TLS with", target, err), plain.Close())
	}
	return conn, nil
}

// visit makes one connection, from connect to close, with one request.
func (v *secureVisitor) visit() (done int64, err error) {
	if err := v.dial(); err != nil {
		return 0, err
	}
	defer v.close()
	if done, err = v.exchange(); err != nil {
		return 0, err
	}
	v.t.connections.Add(1)
	return done, v.part()
}

// part waits until the server, which the request has asked for it, has closed the
// connection: the close of TLS, and the FIN. TIME_WAIT then stays at the server.
func (v *secureVisitor) part() error {
	one := make([]byte, 1)
	for _, from := range []io.Reader{v.conn, v.conn.NetConn()} {
		n, err := from.Read(one)
		switch {
		case n > 0:
			return fmt.Errorf("receive from %s: more than one answer", v.target)
		case err != io.EOF && !errors.Is(err, unix.ECONNRESET):
			return failed("receive from", v.target, err)
		}
	}
	return nil
}

// exchange sends one request and reads its answer.
func (v *secureVisitor) exchange() (done int64, err error) {
	if _, err := v.conn.Write(v.out); err != nil {
		return 0, failed("send to", v.target, err)
	}
	for got := 0; ; {
		n, err := v.conn.Read(v.in[got:])
		got += n
		over, e := v.over(v.in[:got])
		switch {
		case over || e != nil:
			return v.j.clock.now(), e
		case err == io.EOF:
			return 0, closed(v.target)
		case err != nil:
			return 0, failed("receive from", v.target, err)
		}
	}
}

// over reports whether b is a whole answer.
func (v *secureVisitor) over(b []byte) (bool, error) {
	m, ok, err := parseMessage(b)
	if err != nil || !ok {
		return false, err
	}
	if err := status(b, "200"); err != nil {
		return false, err
	}
	switch body := int64(len(b) - m.size); {
	case m.length != int64(v.j.spec.Size) || body > m.length:
		return false, fmt.Errorf("want a body of %d bytes, got one of %d", v.j.spec.Size, m.length)
	case body < m.length:
		return false, nil
	}
	v.t.receivedBytes.Add(uint64(m.length))
	return true, nil
}

// close closes the connection, if there is one. An error means only that
// the server has closed it first.
func (v *secureVisitor) close() {
	if v.conn != nil {
		_ = v.conn.Close()
		v.conn = nil
	}
}

// serveTLS serves the run's requests over TLS too, for paths without a gateway. It
// uses the server of net/http, which also speaks HTTP/2.
func (j *job) serveTLS(port uint16) error {
	cert, err := certificate.New(Host)
	if err != nil {
		return fmt.Errorf("serve TLS: %w", err)
	}
	pair, err := tls.X509KeyPair(cert.Chain, cert.Key)
	if err != nil {
		return fmt.Errorf("serve TLS: %w", err)
	}
	plain, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return fmt.Errorf("serve TLS: %w", err)
	}
	t, body := j.newThread(), pattern(j.spec.Size)
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true},
		ErrorLog:  log.New(io.Discard, "", 0), // the client reports failures
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			n, _ := w.Write(body) // if it fails, the client reports it
			t.sentBytes.Add(uint64(n))
			t.transactions.Add(1)
		}),
		ConnState: func(conn net.Conn, state http.ConnState) {
			if from, err := netip.ParseAddrPort(conn.RemoteAddr().String()); state == http.StateNew && err == nil {
				j.met(from.Addr())
			}
		},
	}
	j.share(&j.receivers, func() error {
		err := server.ServeTLS(plain, "", "")
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	})
	j.share(&j.receivers, func() error {
		for !j.done.Load() {
			time.Sleep(tick)
		}
		return server.Close()
	})
	return nil
}

// connectHTTP2 opens the client's connections with HTTP/2 and starts a goroutine
// for each.
func (j *job) connectHTTP2(target netip.AddrPort) error {
	for range j.spec.Streams {
		conn, err := j.dialTLS(target, "h2")
		if err != nil {
			return err
		}
		c := newHTTP2Client(j, conn, target)
		if err := c.begin(); err != nil {
			return errors.Join(err, conn.Close())
		}
		j.share(&j.senders, func() error {
			defer func() { _ = conn.Close() }() // the answers have come
			return c.run()
		})
	}
	return nil
}
