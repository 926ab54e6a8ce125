package load

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

// The control verbs, in the order of a run.
const (
	doListen  = "listen"  // server: open the port
	doArm     = "arm"     // server: serve one run
	doConnect = "connect" // client: open and start all streams
	doBegin   = "begin"   // both: the window opens
	doAwait   = "await"   // client: answer once the spec's count is reached
	doEnd     = "end"     // both: the window closes
	doQuiet   = "quiet"   // both: senders stop
	doFinish  = "finish"  // both: receivers drain; report
)

// request is a message of the parent to a child; every request has one reply.
type request struct {
	Do    string
	Addr  netip.AddrPort `json:",omitzero"`
	Token uint64         `json:",omitempty"`
	Spec  Spec           `json:",omitzero"`
}

// reply answers a request; the verb determines which fields are set.
type reply struct {
	Fault   *Error         `json:",omitempty"`
	Addr    netip.AddrPort `json:",omitzero"`
	Edge    edge           `json:",omitzero"`
	Outcome outcome        `json:",omitzero"`
}

// edge is the reading of one side at one edge of the window.
type edge struct {
	// Mono is the side's CLOCK_MONOTONIC, CPU the process's CPU time and User
	// the part of it outside the kernel; all in ns.
	Mono   int64
	CPU    int64
	User   int64
	Totals Totals
}

// outcome contains one side's figures of the whole run.
type outcome struct {
	Totals Totals
	// MarkedSent and MarkedReceived count the sent and received datagrams that
	// were sent within their sender's window.
	MarkedSent     uint64
	MarkedReceived uint64
	// Failed counts the transactions in the window that failed.
	Failed uint64
	// Reasons counts the failed attempts by reason.
	Reasons map[string]int `json:",omitempty"`
	// Sources are the addresses of an HTTP server's clients.
	Sources []netip.Addr `json:",omitempty"`
	// Latency, Service and Lateness are HdrHistograms, V2 compressed.
	Latency  []byte `json:",omitempty"`
	Service  []byte `json:",omitempty"`
	Lateness []byte `json:",omitempty"`
}

// helloSize is the length of the message that opens a stream.
const helloSize = 32

const helloMagic = "fairlead"

// hello opens a stream. It contains the run's token and the direction of data, and
// whether the stream is one in the background.
type hello struct {
	token      uint64
	down       bool
	background bool
}

func (h hello) bytes() []byte {
	b := make([]byte, helloSize)
	copy(b, helloMagic)
	binary.LittleEndian.PutUint64(b[8:], h.token)
	if h.down {
		b[16] = 1
	}
	if h.background {
		b[17] = 1
	}
	return b
}

func isHello(b []byte) bool {
	return len(b) == helloSize && bytes.HasPrefix(b, []byte(helloMagic))
}

func parseHello(b []byte) (hello, bool) {
	if !isHello(b) {
		return hello{}, false
	}
	return hello{token: binary.LittleEndian.Uint64(b[8:]), down: b[16] == 1, background: b[17] == 1}, true
}

// stampSize is the least size of a counted datagram in bytes: four bytes of the
// token and one for the sender's phase.
const stampSize = 5

func stamp(b []byte, token uint64, phase uint32) {
	binary.LittleEndian.PutUint32(b, uint32(token))
	b[4] = byte(phase)
}

// readStamp returns the phase of a datagram of this run.
func readStamp(b []byte, token uint64) (phase uint32, ok bool) {
	if len(b) < stampSize || binary.LittleEndian.Uint32(b) != uint32(token) {
		return 0, false
	}
	return uint32(b[4]), true
}
