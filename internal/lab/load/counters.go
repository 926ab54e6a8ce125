package load

import (
	"sync/atomic"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Totals are one side's counters. Bytes are payload.
type Totals struct {
	SentBytes       uint64
	ReceivedBytes   uint64
	PacketsSent     uint64
	PacketsReceived uint64
	Transactions    uint64
	Connections     uint64
	// Errors counts the transactions and connections that failed.
	Errors uint64
}

// minus returns the increase since o, an earlier reading of the same counters.
func (t Totals) minus(o Totals) Totals {
	return Totals{
		SentBytes:       t.SentBytes - o.SentBytes,
		ReceivedBytes:   t.ReceivedBytes - o.ReceivedBytes,
		PacketsSent:     t.PacketsSent - o.PacketsSent,
		PacketsReceived: t.PacketsReceived - o.PacketsReceived,
		Transactions:    t.Transactions - o.Transactions,
		Connections:     t.Connections - o.Connections,
		Errors:          t.Errors - o.Errors,
	}
}

// thread contains the counters of one stream's thread. Only that thread writes
// them; the padding keeps them on separate cache lines.
type thread struct {
	_               [64]byte
	sentBytes       atomic.Uint64
	receivedBytes   atomic.Uint64
	packetsSent     atomic.Uint64
	packetsReceived atomic.Uint64
	transactions    atomic.Uint64
	connections     atomic.Uint64
	errors          atomic.Uint64
	// The rest is read only after the thread has ended.
	markedSent     uint64
	markedReceived uint64
	failed         uint64
	// reasons counts the failures by reason, if the spec has a number of attempts.
	reasons  map[string]int
	latency  *hdrhistogram.Histogram
	service  *hdrhistogram.Histogram
	lateness *hdrhistogram.Histogram
	_        [64]byte
}

// add adds the counters of a thread.
func (t *Totals) add(of *thread) {
	t.SentBytes += of.sentBytes.Load()
	t.ReceivedBytes += of.receivedBytes.Load()
	t.PacketsSent += of.packetsSent.Load()
	t.PacketsReceived += of.packetsReceived.Load()
	t.Transactions += of.transactions.Load()
	t.Connections += of.connections.Load()
	t.Errors += of.errors.Load()
}

// longest is the upper end of the histograms' range in ns; longer durations are
// recorded as longest.
const longest = int64(60e9)

func newHistogram() *hdrhistogram.Histogram {
	h := hdrhistogram.New(1, longest, 3)
	// Touch every page now rather than at the first slow transaction.
	h.Reset()
	return h
}

// note records a duration in ns. It cannot fail: the value is in range.
func note(h *hdrhistogram.Histogram, ns int64) {
	_ = h.RecordValue(min(max(ns, 0), longest))
}
