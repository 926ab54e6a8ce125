package load

import (
	"fmt"
	"net/netip"
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
)

// Workloads lists all of them.
var Workloads = []Workload{TCPBulk, TCPRR, TCPCRR, UDPBulk, UDPRR, UDPPPS}

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
	FIN Close = "fin"
	RST Close = "rst"
)

// Spec is one run of one workload. Zero fields mean the workload's defaults.
type Spec struct {
	Workload Workload
	// Mode is for tcp-rr and udp-rr (default block).
	Mode Mode
	// Direction is for tcp-bulk and udp-bulk (default up).
	Direction Direction
	// Streams counts parallel streams, or concurrent transactions (default 1).
	Streams int
	// Size is in bytes: of one buffer for tcp-bulk (128 KiB), of request and
	// of response for rr and crr (1), of the UDP payload for udp-bulk (1472)
	// and udp-pps (18: a 64-byte frame).
	Size int
	// Rate is the offered load of all streams: bit/s of payload for bulk (per
	// direction), packets/s for udp-pps, transactions/s for the others. 0 means
	// as much as the path can carry.
	Rate float64
	// Close is for tcp-crr (default fin).
	Close Close
	// GSO passes several udp-bulk datagrams to the kernel in one message
	// (UDP_SEGMENT, UDP_GRO).
	GSO bool
	// Count closes a tcp-crr window after this many connections instead of
	// after Duration. It requires one stream.
	Count int
	// Flows is the number of additional UDP flows to the target. Each sends one
	// datagram before the streams are opened, and then stays idle. FlowAddrs are
	// their source addresses; each address provides 64,512 ports.
	Flows     int
	FlowAddrs []netip.Addr
	// Warmup is the time before the window opens, Duration the window's length.
	Warmup   time.Duration
	Duration time.Duration
}

const (
	maxStreams = 1024
	maxRR      = 1 << 20
	maxUDP     = 65507
)

// Normal returns the spec with defaults filled in, or an error that names the
// first invalid field.
func (s Spec) Normal() (Spec, error) {
	s.Streams = or(s.Streams, 1)
	s.Mode = or(s.Mode, Block)
	s.Direction = or(s.Direction, Up)
	s.Close = or(s.Close, FIN)
	s.Size = or(s.Size, defaultSize(s.Workload))
	return s, s.check()
}

func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

func defaultSize(w Workload) int {
	switch w {
	case TCPBulk:
		return 128 << 10
	case UDPBulk:
		return 1472
	case UDPPPS:
		return 18
	}
	return 1
}

func (s Spec) check() error {
	least, most, ok := sizes(s.Workload)
	switch {
	case !ok:
		return fmt.Errorf("unknown workload %q", s.Workload)
	case s.Mode != Block && s.Mode != Spin:
		return fmt.Errorf("unknown mode %q", s.Mode)
	case s.Direction != Up && s.Direction != Down && s.Direction != Both:
		return fmt.Errorf("unknown direction %q", s.Direction)
	case s.Close != FIN && s.Close != RST:
		return fmt.Errorf("unknown close %q", s.Close)
	case s.Streams < 1 || s.Streams > maxStreams:
		return fmt.Errorf("%d streams: want 1 to %d", s.Streams, maxStreams)
	case s.Size < least || s.Size > most:
		return fmt.Errorf("%s size %d: want %d to %d bytes", s.Workload, s.Size, least, most)
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
	case s.GSO && s.Workload != UDPBulk:
		return fmt.Errorf("%s has no GSO", s.Workload)
	case s.Count > 0 && (s.Workload != TCPCRR || s.Streams != 1):
		return fmt.Errorf("%s over %d streams has no count", s.Workload, s.Streams)
	}
	return nil
}

func sizes(w Workload) (least, most int, ok bool) {
	switch w {
	case TCPBulk:
		return 1, 64 << 20, true
	case TCPRR, TCPCRR:
		return 1, maxRR, true
	case UDPRR:
		return 1, maxUDP, true
	case UDPBulk, UDPPPS:
		return stampSize, maxUDP, true
	}
	return 0, 0, false
}

func (w Workload) bulk() bool { return w == TCPBulk || w == UDPBulk }

func (w Workload) udp() bool { return w == UDPBulk || w == UDPRR || w == UDPPPS }

// transactional reports whether the workload has a latency.
func (w Workload) transactional() bool { return w == TCPRR || w == TCPCRR || w == UDPRR }

// links counts the streams in all directions.
func (s Spec) links() int {
	if s.Direction == Both {
		return 2 * s.Streams
	}
	return s.Streams
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
