package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"fairlead/internal/frontend/admin"
	"fairlead/internal/unixsock"

	"golang.org/x/net/netutil"
)

// Options say where a dashboard listens, and who may look.
type Options struct {
	// Address is unix:PATH, or an address and port for TLS.
	Address string
	// Group may use the unix socket in addition to root.
	Group string
	// Certificate and Key are files with the certificate of this host, for TLS.
	Certificate, Key string
	// ClientCA is a file with the authorities of clients' certificates, and Tokens one with hashes of tokens. An
	// address for TLS needs at least one of them. If both are set, clients need both.
	ClientCA, Tokens string
}

const unixPrefix = "unix:"

// Check returns an error if the options do not keep strangers out.
func (o Options) Check() error {
	path, isUnix := strings.CutPrefix(o.Address, unixPrefix)
	tls := o.Certificate != "" || o.Key != "" || o.ClientCA != "" || o.Tokens != ""
	switch {
	case o.Address == "" && (tls || o.Group != ""):
		return errors.New("serve the dashboard: the address is missing: give --dashboard")
	case o.Address == "":
		return nil
	case isUnix && path == "":
		return errors.New("serve the dashboard on unix: the path is missing: name one, e.g. " +
			"unix:/run/fairlead/dashboard.sock")
	case isUnix && tls:
		return errors.New("serve the dashboard on a unix socket: it has no TLS: leave out the flags for certificates and " +
			"tokens")
	case isUnix:
		return nil
	case o.Group != "":
		return errors.New("serve the dashboard to a group: this needs a unix socket: use unix:PATH")
	}
	if _, err := netip.ParseAddrPort(o.Address); err != nil {
		return fmt.Errorf("serve the dashboard on %q: want unix:PATH, or an address and port such as 192.0.2.1:9443",
			o.Address)
	}
	if o.Certificate == "" || o.Key == "" || o.ClientCA == "" && o.Tokens == "" {
		return fmt.Errorf("serve the dashboard on %s: others could read it: give --dashboard-cert and --dashboard-key, and "+
			"--dashboard-client-ca or --dashboard-tokens, or use unix:PATH", o.Address)
	}
	return nil
}

// Listener is where a dashboard is served.
type Listener struct {
	net.Listener
	// guard wraps the dashboard.
	guard func(http.Handler) http.Handler
	// own is the certificate of this host; nil without TLS.
	own *certificate
}

// OnKept makes Serve report why a certificate that has changed cannot be used. The earlier one is served then.
func (l *Listener) OnKept(report func(error)) {
	if l.own != nil {
		l.own.kept = report
	}
}

// Listen listens. It returns the errors of Check, and those of files.
func Listen(o Options) (*Listener, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if path, ok := strings.CutPrefix(o.Address, unixPrefix); ok {
		l, err := admin.ListenFor(path, o.Group)
		if err != nil {
			return nil, fmt.Errorf("serve the dashboard: %w", err)
		}
		return &Listener{Listener: netutil.LimitListener(identified{l}, maxConns),
			guard: func(h http.Handler) http.Handler { return OnlyHosts(Loopback, h) }}, nil
	}
	config, own, err := o.tls()
	if err != nil {
		return nil, fmt.Errorf("serve the dashboard: %w", err)
	}
	guard := func(h http.Handler) http.Handler { return h }
	if o.Tokens != "" {
		tokens, err := NewStored(o.Tokens)
		if err != nil {
			return nil, fmt.Errorf("serve the dashboard: %w", err)
		}
		guard = tokens.Guard
	}
	l, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("serve the dashboard: %w", err)
	}
	named := func(h http.Handler) http.Handler {
		return OnlyHosts(func(name string) bool { return own.current().Leaf.VerifyHostname(name) == nil },
			named(guard(h)))
	}
	return &Listener{tls.NewListener(netutil.LimitListener(l, maxConns), config), named, own}, nil
}

// named notes the name of the client's certificate, if there is one.
func named(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			r = with(r, "certificate "+r.TLS.PeerCertificates[0].Subject.String())
		}
		h.ServeHTTP(w, r)
	})
}

// tls returns the configuration of TLS, and the certificate of this host.
func (o Options) tls() (*tls.Config, *certificate, error) {
	own, err := newCertificate(o.Certificate, o.Key)
	if err != nil {
		return nil, nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own.current(), nil }}
	if o.ClientCA != "" {
		text, err := os.ReadFile(o.ClientCA)
		if err != nil {
			return nil, nil, fmt.Errorf("read the authorities of clients: %w", err)
		}
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(text) {
			return nil, nil, fmt.Errorf("read the authorities of clients: %s has no certificate in PEM", o.ClientCA)
		}
	}
	return c, own, nil
}

// ListenLocal listens on a loopback address without TLS. The credential is a one-time token.
func ListenLocal(address string) (*Listener, *OneTime, error) {
	at, err := netip.ParseAddrPort(strings.Replace(address, "localhost:", "127.0.0.1:", 1))
	if err != nil || !at.Addr().IsLoopback() {
		return nil, nil, fmt.Errorf("listen on %q: want a loopback address and port such as 127.0.0.1:0, because the "+
			"connection is not encrypted: for other hosts, use `ssh -L` or `fairlead daemon --dashboard`", address)
	}
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		return nil, nil, fmt.Errorf("serve the dashboard: %w", err)
	}
	token := NewOneTime()
	guard := func(h http.Handler) http.Handler { return OnlyHosts(Loopback, token.Guard(h)) }
	return &Listener{Listener: netutil.LimitListener(l, maxConns), guard: guard}, token, nil
}

// The limits of connections and requests.
const (
	maxConns  = 128
	maxHeader = 16 << 10
	// requestLimit is how long a client may take to send a request with its body, until the guard lets it in.
	requestLimit = 5 * time.Second
	writeLimit   = 30 * time.Second
	idleLimit    = 2 * time.Minute
)

// Page is a dashboard. Close ends its streams.
type Page interface {
	http.Handler
	Close()
}

// Serve serves the dashboard until ctx ends. It does not wait for streams then.
func (l *Listener) Serve(ctx context.Context, d Page) error {
	stop := context.AfterFunc(ctx, d.Close)
	defer stop()
	err := admin.ServeUntil(ctx, l.Listener, &http.Server{Handler: l.guarded(d), MaxHeaderBytes: maxHeader,
		ReadTimeout: requestLimit, WriteTimeout: writeLimit, IdleTimeout: idleLimit,
		ErrorLog: log.New(io.Discard, "", 0)}) // any host can cause these errors
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the dashboard: %w", err)
	}
	return nil
}

// guarded wraps the dashboard with the guard. The connection of a refused request is closed, so that those without a
// credential cannot keep connections. A request that the guard lets in may last, as streams do.
func (l *Listener) guarded(d http.Handler) http.Handler {
	guard := l.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Del("Connection")
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // it fails only with the connection
		d.ServeHTTP(w, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		guard.ServeHTTP(w, r)
	})
}

// identified is a unix socket's listener. The remote address of its connections is the user that has connected.
type identified struct{ net.Listener }

// Accept implements net.Listener.
func (l identified) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if conn, ok := c.(*net.UnixConn); ok {
		if peer, err := unixsock.PeerOf(conn); err == nil {
			return from{c, user(fmt.Sprintf("user %d, process %d", peer.Uid, peer.Pid))}, nil
		}
	}
	return c, err
}

// from is a connection of a user.
type from struct {
	net.Conn
	user
}

// RemoteAddr implements net.Conn.
func (f from) RemoteAddr() net.Addr { return f.user }

// user is who has connected to a unix socket.
type user string

// Network implements net.Addr.
func (user) Network() string { return "unix" }

func (u user) String() string { return string(u) }
