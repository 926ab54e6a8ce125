package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"

	"fairlead/internal/api"
)

// tlsAlert is the type of the TLS records with which a server ends a connection that does not use TLS
// (RFC 8446, section 5.1).
const tlsAlert = 21

// errUsesTLS is the error of a connection without TLS to a server with TLS.
var errUsesTLS = errors.New("it uses TLS: write https:// instead of http:// in --etcd")

// reach notes why the last attempt to connect to a server has failed, because gRPC reports only that it has. Its
// methods may be called concurrently.
type reach struct {
	host, port string
	// secure is true for https. ca and certificate say whether the access has them.
	secure, ca, certificate bool

	mu sync.Mutex
	// last is nil if the server has answered the last attempt, or if there was none.
	last error
}

func newReach(u *url.URL, a api.EtcdAccess) *reach {
	return &reach{host: u.Hostname(), port: u.Port(), secure: u.Scheme == "https", ca: a.CA != "",
		certificate: a.Certificate != ""}
}

func (r *reach) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = err
}

// dial connects to an address.
type dial func(ctx context.Context, address string) (net.Conn, error)

// dialer returns a function that dials, and notes errors. If from is nil, it connects from this host.
func (r *reach) dialer(from dial) dial {
	if from == nil {
		from = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := from(ctx, address)
		if err != nil {
			r.note(err)
		}
		return conn, err
	}
}

// handshakes are credentials that note errors of handshakes, and whether the server answers afterwards: with
// TLS 1.3, a server refuses the client's certificate after the client has completed the handshake.
type handshakes struct {
	credentials.TransportCredentials
	reach *reach
}

// ClientHandshake implements credentials.TransportCredentials.
func (h handshakes) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		h.reach.note(err)
		return conn, info, err
	}
	return &firstRead{Conn: conn, reach: h.reach}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.reach}
}

// firstRead is a connection that notes what its first read returns. gRPC reads from one goroutine.
type firstRead struct {
	net.Conn
	reach *reach
	done  bool
}

// Read implements net.Conn.
func (c *firstRead) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.done && (n > 0 || err != nil) {
		c.done = true
		switch {
		case n > 0 && b[0] == tlsAlert && !c.reach.secure:
			c.reach.note(errUsesTLS)
		case n > 0:
			c.reach.note(nil)
		default:
			c.reach.note(&closedError{err})
		}
	}
	return n, err
}

// closedError is the error of a connection that the server has ended before it has sent anything.
type closedError struct{ error }

// Unwrap returns why the connection has ended.
func (e *closedError) Unwrap() error { return e.error }

// failed returns why the server cannot be reached, and what to correct.
func (r *reach) failed() error {
	r.mu.Lock()
	err := r.last
	r.mu.Unlock()
	if err == nil {
		return errors.New("it answers, but not as etcd: correct the address and the port in --etcd")
	}
	return r.explain(err)
}

// silent returns why the server has not accepted a connection in time.
func (r *reach) silent() error {
	r.mu.Lock()
	err := r.last
	r.mu.Unlock()
	if err == nil {
		err = os.ErrDeadlineExceeded
	}
	return r.explain(err)
}

// explain returns an error of an attempt in words.
func (r *reach) explain(err error) error {
	var name *net.DNSError
	var remote *net.OpError
	var closed *closedError
	switch {
	case err == errUsesTLS:
		return err
	case errors.As(err, &name) && name.IsNotFound:
		return fmt.Errorf("this host cannot resolve the name %s: correct it in --etcd, or the host's name servers", r.host)
	case errors.As(err, &name):
		return fmt.Errorf("the name servers of this host do not answer for %s: correct them, or write the server's "+
			"address in --etcd", r.host)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return r.refused(remote.Err)
	case r.secure && isCertificate(err):
		return r.untrusted(err)
	case errors.As(err, new(tls.RecordHeaderError)):
		return errors.New("it does not use TLS: write http:// instead of https:// in --etcd")
	case errors.Is(err, unix.ECONNREFUSED):
		return errors.New("it refuses connections: start etcd there, or correct the address and the port in --etcd")
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, unix.ETIMEDOUT):
		return fmt.Errorf("it does not answer: start etcd there, correct the address in --etcd, or allow TCP port %s in "+
			"the firewalls in between", r.port)
	case errors.As(err, &closed):
		return r.ended()
	case errors.Is(err, unix.ECONNRESET) || errors.Is(err, io.EOF):
		return errors.New("it closed the connection during the TLS handshake: if it does not use TLS, write http:// " +
			"instead of https:// in --etcd")
	}
	return fmt.Errorf("this host cannot connect to it: %w: correct the address in --etcd, or the routes and firewalls "+
		"in between", err)
}

// correctCertificate is what to do if a server refuses the client's certificate.
const correctCertificate = "give one with --etcd-cert and --etcd-key that is valid now, and that is signed by the CA that " +
	"etcd trusts (--trusted-ca-file)"

// refused returns why a server has ended a TLS connection with an alert.
func (r *reach) refused(alert error) error {
	if !r.certificate {
		return fmt.Errorf("it ended the TLS handshake (%w): if it asks for a client certificate, give --etcd-cert and "+
			"--etcd-key", alert)
	}
	return fmt.Errorf("it refuses this host's client certificate (%w): %s", alert, correctCertificate)
}

// isCertificate reports whether the client does not accept the server's certificate.
func isCertificate(err error) bool { return errors.As(err, new(*tls.CertificateVerificationError)) }

// untrusted returns why this host does not accept the server's certificate.
func (r *reach) untrusted(err error) error {
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)) && r.ca:
		return errors.New("its certificate is not signed by the CA in --etcd-ca: give the certificate of etcd's CA")
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return errors.New("its certificate is not signed by a CA that this host trusts: give the certificate of etcd's " +
			"CA with --etcd-ca")
	case errors.As(err, &name):
		return fmt.Errorf("its certificate is not valid for %s: write a name or an address of the certificate in --etcd, "+
			"or give etcd another certificate (--cert-file)", r.host)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return errors.New("its certificate has expired or is not valid yet: give etcd another one (--cert-file), or " +
			"correct the clock of this host")
	}
	return fmt.Errorf("its certificate is not valid: %w: give etcd another one (--cert-file)", err)
}

// ended returns why a server may have closed a connection before it has answered. Its alert can get lost then.
func (r *reach) ended() error {
	switch {
	case !r.secure:
		return errors.New("it closed the connection before it answered: if it uses TLS, write https:// instead of http:// " +
			"in --etcd")
	case !r.certificate:
		return errors.New("it closed the connection after the TLS handshake: if it asks for a client certificate, give " +
			"--etcd-cert and --etcd-key")
	}
	return errors.New("it closed the connection after the TLS handshake: if it refuses this host's client certificate, " +
		correctCertificate)
}
