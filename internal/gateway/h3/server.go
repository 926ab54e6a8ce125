// Package h3 serves HTTP/3 (RFC 9114) at an entry point, with quic-go.
//
// # Theory of operation
//
// The handlers are those of the entry point's other protocols. QUIC is encrypted always, and 0-RTT is
// off: its data can be replayed. Memory is bounded per connection by the windows of flow control, and
// by the number of requests whose handlers run: a client that resets its requests may send others
// before the handlers of the first have ended, and loses its connection when there are too many.
// Requests without progress end (see h2.Pacer).
package h3

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/h2"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// Config has the settings of a server.
type Config struct {
	Socket  *net.UDPConn
	TLS     *tls.Config
	Handler http.Handler
	// MaxHeaderBytes limits the head of a request, MaxStreams the requests of a connection at once.
	MaxHeaderBytes, MaxStreams int
	// Idle is how long a connection may have no request, Read and Write how long a client may send
	// and receive nothing. 0 means no limit.
	Idle, Read, Write time.Duration
	// Enter is called for each connection, and refuses it with nil. The server calls heard at the first
	// request, and leave at the end of the connection.
	Enter func(*quic.Conn) (heard, leave func())
}

// The windows of flow control limit what the gateway buffers of uploads.
const (
	streamWindow     = 1 << 20
	connectionWindow = 3 << 19
)

// crowded is the number of connections, also of those whose handshake is not complete, from which the
// addresses of clients are verified: spoofed packets then cost no memory (RFC 9000 8.1.2).
const crowded = 1000

// probedSilence is how long the peer of a connection without an idle timeout may not acknowledge probes. QUIC
// has no other way to find out that a peer is gone.
const probedSilence = 3 * time.Minute

// Server serves the connections of one socket.
type Server struct {
	config    Config
	transport *quic.Transport
	listener  *quic.Listener
	http      *http3.Server
	// open counts the connections from their first packet on.
	open atomic.Int64
	// heard has the functions of connections without a request.
	heard sync.Map
}

// Listen returns a server that accepts connections from now on.
func Listen(config Config) (*Server, error) { return listen(config, crowded) }

// listen is Listen with the number of connections from which addresses are verified.
func listen(config Config, crowded int64) (*Server, error) {
	s := &Server{config: config}
	s.transport = &quic.Transport{Conn: config.Socket, ConnContext: s.begin,
		VerifySourceAddress: func(net.Addr) bool { return s.open.Load() >= crowded }}
	s.http = &http3.Server{Handler: h2.NewPacer(http.HandlerFunc(s.serve), config.Read, config.Write),
		MaxHeaderBytes: config.MaxHeaderBytes, IdleTimeout: config.Idle, ConnContext: s.context}
	var err error
	silence, probe := config.Idle, time.Duration(0)
	if silence == 0 {
		silence, probe = probedSilence, probedSilence/3
	}
	s.listener, err = s.transport.Listen(http3.ConfigureTLSConfig(recovering(config.TLS)), &quic.Config{
		MaxIdleTimeout: silence, KeepAlivePeriod: probe,
		MaxIncomingStreams: int64(config.MaxStreams), MaxIncomingUniStreams: 8,
		MaxStreamReceiveWindow: streamWindow, MaxConnectionReceiveWindow: connectionWindow,
		InitialStreamReceiveWindow: streamWindow / 2, InitialConnectionReceiveWindow: streamWindow / 2})
	return s, err
}

// begin counts a connection. The context ends with it, also if its handshake fails.
func (s *Server) begin(ctx context.Context, _ *quic.ClientInfo) (context.Context, error) {
	s.open.Add(1)
	goroutine.OnDone(ctx, "end a connection of HTTP/3", func() { s.open.Add(-1) })
	return ctx, nil
}

// recovering returns a configuration whose lookup may panic: quic-go calls it on a goroutine that does not
// recover.
func recovering(c *tls.Config) *tls.Config {
	find := c.GetConfigForClient
	if find == nil {
		return c
	}
	c = c.Clone()
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (to *tls.Config, err error) {
		err = errors.New("a mistake in the gateway") // if it panics
		defer goroutine.Recover("find the TLS options of a connection")
		to, err = find(hello)
		return to, err
	}
	return c
}

// Serve serves connections until Shutdown or Close, and then returns http.ErrServerClosed.
func (s *Server) Serve() error {
	for {
		c, err := s.listener.Accept(context.Background())
		if errors.Is(err, quic.ErrServerClosed) || errors.Is(err, quic.ErrTransportClosed) {
			return http.ErrServerClosed
		}
		if err != nil {
			return err
		}
		goroutine.Go("serve a connection of HTTP/3", func() { s.serveConn(c) })
	}
}

func (s *Server) serveConn(c *quic.Conn) {
	defer goroutine.Recover("serve a connection of HTTP/3", func() {
		_ = c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeInternalError), "")
	})
	heard, leave := s.config.Enter(c)
	if leave == nil {
		Refuse(c)
		return
	}
	s.heard.Store(c, heard)
	defer leave()
	defer s.heard.Delete(c)
	_ = s.http.ServeQUICConn(c) // the client's errors
}

// Refuse closes a connection because there are too many.
func Refuse(c *quic.Conn) {
	_ = c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeExcessiveLoad), "") // it is over in any case
}

// Shutdown accepts no connection any more, and waits until the requests in progress are answered or
// the context ends. Then it closes the socket.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.listener.Close()
	_ = s.http.Shutdown(ctx) // it closes what is left
	return errors.Join(err, s.Close())
}

// Close closes the connections and the socket.
func (s *Server) Close() error {
	return errors.Join(s.http.Close(), s.transport.Close(), s.config.Socket.Close())
}

// connection counts the requests of a connection whose handlers run.
type connection struct {
	quic   *quic.Conn
	active atomic.Int64

	mu     sync.Mutex
	resets h2.Resets
}

// ended counts a request that has ended. It closes the connection if its client has reset too many.
func (c *connection) ended(r *http.Request) {
	c.active.Add(-1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resets.Request()
	if r.Context().Err() != nil && c.resets.Reset(time.Now()) {
		Refuse(c.quic)
	}
}

type connectionKey struct{}

func (s *Server) context(ctx context.Context, c *quic.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{quic: c})
}

// serve passes a request to the handler.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(connectionKey{}).(*connection)
	if heard, silent := s.heard.LoadAndDelete(c.quic); silent {
		heard.(func())()
	}
	defer c.ended(r)
	if c.active.Add(1) > int64(s.config.MaxStreams) {
		_ = c.quic.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeExcessiveLoad), "too many requests")
		return
	}
	if !settleBody(r) {
		panic(http.ErrAbortHandler)
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &counted{ReadCloser: r.Body}
	}
	s.config.Handler.ServeHTTP(w, r)
	if s.config.Write > 0 { // what is buffered is sent after the handler
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.config.Write))
	}
}

// counted is a request's body that counts what the handler reads.
type counted struct {
	io.ReadCloser
	received atomic.Int64
}

// Read implements io.Reader.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// Received returns how many bytes of the body the handler has got.
func (c *counted) Received() int64 { return c.received.Load() }

// settleBody finds out whether a request without a length has a body: HTTP/3 does not say so in the
// head. It returns false if the body cannot be read.
func settleBody(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodDelete:
	default:
		return true
	}
	if r.ContentLength >= 0 || r.Body == nil {
		return true
	}
	var first [1]byte
	n, err := io.ReadFull(r.Body, first[:])
	switch {
	case n > 0:
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(first[:]), r.Body), r.Body}
		return true
	case err == io.EOF:
		r.Body, r.ContentLength = http.NoBody, 0
		return true
	}
	return false
}

// maxAge is how long clients remember that a server speaks HTTP/3, in seconds.
const maxAge = 30 * 24 * 60 * 60

// Advertise wraps the handler of connections of TCP: responses over TLS say that the server speaks
// HTTP/3 at the port (RFC 7838).
func Advertise(port int, next http.Handler) http.Handler {
	value := []string{`h3=":` + strconv.Itoa(port) + `"; ma=` + strconv.Itoa(maxAge)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil {
			w.Header()["Alt-Svc"] = value[:1:1]
		}
		next.ServeHTTP(w, r)
	})
}
