package load

import (
	"cmp"
	"fmt"
	"net/netip"
	"runtime"
	"time"
)

// Workload names the kind of traffic.
type Workload string

// The workloads.
const (
	TCPBulk Workload = "tcp-bulk"
	TCPRR   Workload = "tcp-rr"
	TCPCRR  Workload = "tcp-crr"
	UDPBulk Workload = "udp-bulk"
	UDPRR   Workload = "udp-rr"
	UDPPPS  Workload = "udp-pps"
	// UDPQuery is one question and one answer per socket, as DNS clients do.
	UDPQuery Workload = "udp-query"

	HTTPRR   Workload = "http-rr"
	HTTPCRR  Workload = "http-crr"
	HTTPDown Workload = "http-down"
	HTTPUp   Workload = "http-up"
	WSRR     Workload = "ws-rr"
	HTTPIdle Workload = "idle-conns"
)

// traits are what a workload has and accepts.
type traits struct {
	// size is the default of Spec.Size, between least and most.
	size, least, most int
	// latency is true if the workload has transactions with a latency.
	latency bool
}

var workloads = map[Workload]traits{
	TCPBulk:  {size: 128 << 10, least: 1, most: 64 << 20},
	TCPRR:    {size: 1, least: 1, most: maxRR, latency: true},
	TCPCRR:   {size: 1, least: 1, most: maxRR, latency: true},
	UDPBulk:  {size: MaxDatagram4, least: stampSize, most: maxUDP},
	UDPRR:    {size: 1, least: 1, most: maxUDP, latency: true},
	UDPPPS:   {size: 18, least: stampSize, most: maxUDP},
	UDPQuery: {size: 40, least: querySize, most: maxUDP, latency: true},
	HTTPRR:   {size: 64, least: 1, most: maxRR, latency: true},
	HTTPCRR:  {size: 64, least: 1, most: maxRR, latency: true},
	HTTPDown: {size: 16 << 20, least: 1, most: maxBody},
	HTTPUp:   {size: 16 << 20, least: 1, most: maxBody},
	WSRR:     {size: 64, least: 1, most: maxFrame, latency: true},
	HTTPIdle: {size: 64, least: 1, most: maxRR},
}

// Mode says how a transaction waits.
type Mode string

// The modes: sleep in the kernel, or poll a non-blocking socket.
const (
	Block Mode = "block"
	Spin  Mode = "spin"
)

// Direction is the direction of bulk data.
type Direction string

// The directions: client to server, server to client, and both at once on
// twice as many streams.
const (
	Up   Direction = "up"
	Down Direction = "down"
	Both Direction = "both"
)

// Close says how a tcp-crr connection ends.
type Close string

// The kinds of closing; the package comment says which side closes and why.
const (
	FIN       Close = "fin"
	RST       Close = "rst"
	ClientFIN Close = "client-fin"
)

// Spec is one run of one workload. Zero fields mean the workload's defaults.
type Spec struct {
	Workload Workload
	// Mode is for tcp-rr and udp-rr (default block).
	Mode Mode
	// Direction is for tcp-bulk and udp-bulk (default up).
	Direction Direction
	// Streams counts parallel streams, or concurrent transactions (default 1). For
	// HTTP it counts connections.
	Streams int
	// Size is in bytes: of one buffer for tcp-bulk (128 KiB), of request and
	// of response for rr and crr (1), of the UDP payload for udp-bulk (1472,
	// over IPv6 1452) and udp-pps (18: a 64-byte frame). For HTTP it is that of a body: of the
	// answer (64, in http-down 16 MiB), of the request in http-up (16 MiB), or of a
	// WebSocket message (64).
	Size int
	// TLS is for http-rr and http-crr.
	TLS bool
	// Multiplex is the number of concurrent requests on each connection of http-rr
	// with TLS, which then use HTTP/2; 0 means HTTP/1.1.
	Multiplex int
	// Rate is the offered load of all streams: bit/s of payload for bulk (per
	// direction), packets/s for udp-pps, transactions/s for the others. 0 means
	// as much as the path can carry.
	Rate float64
	// Background is the number of streams of tcp-bulk from the client that run beside
	// the transactions of tcp-rr, as fast as the path allows.
	Background int
	// Close is for tcp-crr (default fin).
	Close Close
	// Count closes a tcp-crr window after this many connections instead of
	// after Duration. It requires one stream.
	Count int
	// Attempts is the number of connections that tcp-crr tries to make, each once and from
	// a source port of its own, in a window that ends after them, or after Duration. Those
	// that fail are counted by reason, and do not end the run. It requires one stream.
	Attempts int
	// Flows is the number of additional UDP flows to the target. Each sends one
	// datagram before the streams are opened, and then stays idle. FlowAddrs are
	// their source addresses; each address provides 64,512 ports.
	Flows     int
	FlowAddrs []netip.Addr
	// Warmup is the time before the window opens, Duration the window's length.
	Warmup   time.Duration
	Duration time.Duration
}

// MaxDatagram4 and MaxDatagram6 are the largest payloads in bytes of UDP datagrams that
// a wire with an MTU of 1500 carries in one packet.
const (
	MaxDatagram4 = 1472
	MaxDatagram6 = 1452
)

const (
	maxStreams   = 1024
	maxIdle      = 15_000
	maxRR        = 1 << 20
	maxUDP       = 65507
	maxBody      = 1 << 30
	maxMultiplex = 100
	maxAttempts  = flowPorts - 1
)

// Normal returns the spec with defaults filled in, or an error that names the
// first invalid field.
func (s Spec) Normal() (Spec, error) {
	s.Streams = cmp.Or(s.Streams, 1)
	s.Mode = cmp.Or(s.Mode, Block)
	s.Direction = cmp.Or(s.Direction, Up)
	s.Close = cmp.Or(s.Close, FIN)
	s.Size = cmp.Or(s.Size, workloads[s.Workload].size)
	return s, s.check()
}

func (s Spec) check() error {
	of, ok := workloads[s.Workload]
	switch {
	case !ok:
		return fmt.Errorf("unknown workload %q", s.Workload)
	case s.Mode != Block && s.Mode != Spin:
		return fmt.Errorf("unknown mode %q", s.Mode)
	case s.Direction != Up && s.Direction != Down && s.Direction != Both:
		return fmt.Errorf("unknown direction %q", s.Direction)
	case s.Close != FIN && s.Close != RST && s.Close != ClientFIN:
		return fmt.Errorf("unknown close %q", s.Close)
	case s.Streams < 1 || s.Streams > s.Workload.maxStreams():
		return fmt.Errorf("%d streams: want 1 to %d", s.Streams, s.Workload.maxStreams())
	case s.Background < 0 || s.Background > maxStreams:
		return fmt.Errorf("%d streams in the background: want 0 to %d", s.Background, maxStreams)
	case s.Multiplex < 0 || s.Multiplex > maxMultiplex:
		return fmt.Errorf("%d concurrent requests: want 0 to %d", s.Multiplex, maxMultiplex)
	case s.Size < of.least || s.Size > of.most:
		return fmt.Errorf("%s size %d: want %d to %d bytes", s.Workload, s.Size, of.least, of.most)
	case s.Attempts < 0 || s.Attempts > maxAttempts:
		return fmt.Errorf("%d attempts: want 0 to %d", s.Attempts, maxAttempts)
	case s.Count < 0 || s.Flows < 0 || s.Flows > len(s.FlowAddrs)*flowPorts:
		return fmt.Errorf("count %d, %d flows from %d addresses: want 0 or more, and one address per %d flows",
			s.Count, s.Flows, len(s.FlowAddrs), flowPorts)
	case s.Rate < 0 || s.Warmup < 0 || s.Duration <= 0:
		return fmt.Errorf("rate %g, warm-up %s, duration %s: want 0 or more, and a duration over 0",
			s.Rate, s.Warmup, s.Duration)
	}
	return s.fits()
}

// fits returns an error for an option that the workload does not have, so that no
// option is silently ignored.
func (s Spec) fits() error {
	rr := s.Workload == TCPRR || s.Workload == UDPRR
	switch {
	case s.Mode == Spin && !rr:
		return fmt.Errorf("%s has no spin mode", s.Workload)
	case s.Direction != Up && !s.Workload.bulk():
		return fmt.Errorf("%s has no direction %q", s.Workload, s.Direction)
	case s.Close != FIN && s.Workload != TCPCRR:
		return fmt.Errorf("%s has no close %q", s.Workload, s.Close)
	case s.Count > 0 && (s.Workload != TCPCRR || s.Streams != 1):
		return fmt.Errorf("%s over %d streams has no count", s.Workload, s.Streams)
	case s.Attempts > 0 && (s.Workload != TCPCRR || s.Streams != 1 || s.Count > 0 || s.Rate > 0):
		return fmt.Errorf("%s over %d streams, or with a count or rate, has no number of attempts", s.Workload, s.Streams)
	case s.Background > 0 && s.Workload != TCPRR:
		return fmt.Errorf("%s has no streams in the background", s.Workload)
	case s.TLS && s.Workload != HTTPRR && s.Workload != HTTPCRR:
		return fmt.Errorf("%s has no TLS", s.Workload)
	case s.Multiplex > 0 && (s.Workload != HTTPRR || !s.TLS):
		return fmt.Errorf("%s without TLS has one request at a time on a connection", s.Workload)
	case s.Rate > 0 && s.Workload.HTTP() && (s.Workload != HTTPRR || s.TLS):
		return fmt.Errorf("%s has no fixed rate, or not with TLS", s.Workload)
	}
	return nil
}

func (w Workload) maxStreams() int {
	if w == HTTPIdle {
		return maxIdle
	}
	return maxStreams
}

// HTTP reports whether the traffic is requests over HTTP.
func (w Workload) HTTP() bool {
	return w == HTTPRR || w == HTTPCRR || w == HTTPDown || w == HTTPUp || w == WSRR || w == HTTPIdle
}

// payload reports whether the workload's figure is its number of bytes.
func (w Workload) payload() bool { return w.bulk() || w == HTTPDown || w == HTTPUp }
func (w Workload) bulk() bool    { return w == TCPBulk || w == UDPBulk }

func (w Workload) udp() bool { return w == UDPBulk || w == UDPRR || w == UDPPPS || w == UDPQuery }

// transactional reports whether the workload has a latency.
func (w Workload) transactional() bool { return workloads[w].latency }

// links counts the streams in all directions.
func (s Spec) links() int {
	if s.Direction == Both {
		return 2 * s.Streams
	}
	return s.Streams + s.Background
}

// background reports whether the i-th stream is one in the background.
func (s Spec) background(i int) bool { return s.Background > 0 && i >= s.Streams }

// buffer is the size in bytes of one buffer of bulk data.
func (s Spec) buffer() int {
	if s.Background > 0 {
		return workloads[TCPBulk].size
	}
	return s.Size
}

// threads counts each side's threads: one per stream. For HTTP a thread has many
// connections, so it is half of the number of CPUs; with TLS it is that number.
func (s Spec) threads() int {
	switch {
	case !s.Workload.HTTP():
		return s.links()
	case s.TLS:
		return runtime.NumCPU()
	}
	return min(s.Streams, max(1, runtime.NumCPU()/2))
}

// share is the number of connections of the i-th thread.
func (s Spec) share(i int) int {
	n := s.threads()
	return (s.Streams + n - 1 - i) / n
}

// flow is the direction of the i-th stream.
func (s Spec) flow(i int) Direction {
	if s.Direction != Both {
		return s.Direction
	}
	if i < s.Streams {
		return Up
	}
	return Down
}
