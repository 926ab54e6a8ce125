package h1

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fairlead/internal/gateway/h1/wire"
	"fairlead/internal/gateway/nonblock"
)

// Server serves HTTP/1.0 and HTTP/1.1 to clients. Set the fields before the first connection. Durations
// of 0 mean no limit; they have a granularity of about a second.
//
// Handlers are those of net/http, with three differences. The request and its header belong to the
// connection: a handler must not use them after it has returned. Handlers may read the request's body
// after they have begun to write (EnableFullDuplex). The Content-Type of a response is not detected.
type Server struct {
	Handler http.Handler
	// Context is the parent of the requests' contexts. Nil means context.Background.
	Context context.Context
	// MaxHeaderBytes limits the head of a request. 0 means 64 KiB.
	MaxHeaderBytes int
	// HeaderTimeout limits the time until a head is complete, on a new connection with the TLS
	// handshake. IdleTimeout limits the time between two requests.
	HeaderTimeout, IdleTimeout time.Duration
	// ReadTimeout limits the time without progress while a body is read, WriteTimeout while a
	// response is written.
	ReadTimeout, WriteTimeout time.Duration
	// MaxRequests and MaxAge limit the requests and the age of a connection: the response that reaches a limit
	// is its last one. 0 means no limit.
	MaxRequests int
	MaxAge      time.Duration
	// MaxConns limits the connections; further ones are closed at once. 0 means no limit.
	MaxConns int
	// Panicked, if not nil, is called with the value of a handler's panic, other than
	// http.ErrAbortHandler, on the goroutine that has panicked.
	Panicked func(r *http.Request, value any)

	mu        sync.Mutex
	conns     map[*conn]struct{}
	listeners map[net.Listener]struct{}
	parking   parking
	timer     *time.Timer
	// drained is closed when the last connection ends after Shutdown.
	drained chan struct{}
	// draining is set by Shutdown, last by Drain and Shutdown: the next response of a connection is
	// its last.
	draining, last atomic.Bool
	// now is the time of the last inspection, in seconds since the epoch, and date the same time
	// for the Date field.
	now     atomic.Int64
	date    atomic.Pointer[string]
	refused atomic.Uint64
}

func (s *Server) maxHead() int {
	if s.MaxHeaderBytes > 0 {
		return s.MaxHeaderBytes
	}
	return wire.BufferSize
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if len(s.conns) == 0 && s.drained != nil {
		close(s.drained)
		s.drained = nil
	}
}

// conn is a client's connection. It belongs to the goroutine of ServeConn but for its atomic fields.
type conn struct {
	wire.Input
	out    wire.Output
	server *Server
	tcp    *net.TCPConn
	tls    *tls.ConnectionState
	// secure: the connection uses TLS. Unlike tls, it is known before the handshake: inspect reads it.
	secure bool
	// socket is the descriptor, also below TLS.
	socket syscall.RawConn
	remote string

	// reading is the phase of the connection and its start, writing the start of a write in
	// progress or 0.
	reading, writing atomic.Int64
	ctx              atomic.Pointer[requestContext]
	// seen is what the kernel has moved as of the last inspection.
	seen wire.Transferred

	// request, url, header and values are used again by each request. blank is a request with
	// nothing but the context.
	request, blank *http.Request
	url            url.URL
	header         http.Header
	values         []string
	fields         []wire.Field
	body           *requestBody
	w              writer
	// deadlines: a handler has set a deadline, which must not concern the next request.
	deadlines atomic.Bool

	age
	// heard is called when the first head is complete, and is nil afterwards. ended is called when the
	// connection has ended.
	heard, ended func()
	// since is when a connection that was parked began to wait, in seconds; 0 if it is new. stays:
	// it cannot be parked.
	since int64
	stays atomic.Bool
}

func (c *conn) enter(phase int64) { c.reading.Store(mark(phase, c.server.now.Load())) }

// age is the age of a connection: the second in which it was opened, and its requests.
type age struct {
	opened   int64
	requests int
}

// isOver reports whether the connection must close after the current request.
func (a *age) isOver(s *Server) bool {
	return s.MaxRequests > 0 && a.requests >= s.MaxRequests ||
		s.MaxAge > 0 && s.now.Load()-a.opened >= seconds(s.MaxAge)
}

// requestBody is the body of one request. It is not used again, so that a late read cannot reach the
// next request.
type requestBody struct {
	mu      sync.Mutex
	conn    *conn // nil after the end of the request
	left    int64
	chunked bool
	decoder wire.Chunked
	request *http.Request
	err     error
	// whole: the body was read to its end, and nothing reads the connection for it any more. failed: it
	// cannot be read to its end.
	whole, failed atomic.Bool
	// received is atomic, because a goroutine of the handler may still wait in Read.
	received atomic.Int64
	// last is when a part was read last, in nanoseconds since 1970.
	last atomic.Int64
}

// requestContext is the context of the requests of a connection. It starts no goroutine and has no
// channel until one is asked for; then it serves one request only.
type requestContext struct {
	conn   *conn
	parent context.Context

	mu    sync.Mutex
	done  chan struct{}
	err   error
	after map[*func()]struct{}
	stop  func() bool
}

// writer is the http.ResponseWriter of a connection. Head and body are written together if the body
// fits into the buffer.
type writer struct {
	conn    *conn
	request *http.Request
	header  http.Header
	// buf holds what was not written to the connection: the head, then a part of the body.
	buf []byte
	// gap is where the fields that frame the body go, while framed is false.
	gap      int
	status   int
	framed   bool
	chunked  bool
	bodiless bool // the response has no body, whatever the handler writes
	head     bool // the request's method is HEAD
	// length is the Content-Length, -1 if unknown. written counts the body.
	length, written int64
	// closing: the connection closes after this response.
	closing  bool
	hijacked bool
	err      error
	// expect: the client waits for the interim response 100. interim protects sealed: the final
	// response has begun. The body may be read on another goroutine than the handler's.
	expect  atomic.Bool
	interim sync.Mutex
	sealed  bool
	vector  net.Buffers
	parts   [2][]byte
}

// parked is a connection without a goroutine: it waits for its next request in the parking lot.
type parked struct {
	conn net.Conn
	// since is the second in which the connection began to wait.
	since int64
	age   age
	ended func()
}

// parking is the set of the parked connections of a server. The server's mutex protects it.
type parking struct {
	// poll waits for all of them; it is nil before the first one.
	poll  *nonblock.Poll
	conns map[int32]*parked
	// unfreed counts the goroutines that have ended since memory was freed; freeAt is when it may be
	// freed again.
	unfreed int
	freeAt  time.Time
}

// Phases of a connection.
const (
	phaseNew     = iota // a new connection, also during the TLS handshake: no byte of a request has arrived
	phaseHead           // a head is incomplete
	phaseIdle           // no byte of the next request has arrived
	phaseHandler        // a handler runs
	phaseBody           // a handler waits for a part of the body
	phaseParks          // as phaseIdle; inspect has interrupted the read, so that the connection is parked
)

// mark packs a phase and the second in which it began.
func mark(phase, second int64) int64 { return second<<3 | phase }

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
