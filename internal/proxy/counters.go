package proxy

import "sync/atomic"

// counters are one worker's. Only the worker writes them, but for the
// connections that others hand to it, so an addition hardly ever contends;
// the padding keeps workers off each other's cache lines.
type counters struct {
	_                         [64]byte
	bytesIn, bytesOut         atomic.Uint64
	accepted                  atomic.Uint64
	datagramsIn, datagramsOut atomic.Uint64
	// bulk is how many ways through this worker have a pipe.
	connections, flows, bulk atomic.Int64
	_                        [64]byte
}

// moved counts payload bytes in direction d.
func (c *counters) moved(d direction, n int) {
	if d == inward {
		c.bytesIn.Add(uint64(n))
	} else {
		c.bytesOut.Add(uint64(n))
	}
}

// total adds up the workers' counters.
func total(workers []*worker) Stats {
	var s Stats
	for _, w := range workers {
		s.BytesIn += w.counts.bytesIn.Load()
		s.BytesOut += w.counts.bytesOut.Load()
		s.Accepted += w.counts.accepted.Load()
		s.DatagramsIn += w.counts.datagramsIn.Load()
		s.DatagramsOut += w.counts.datagramsOut.Load()
		s.Connections += uint64(w.counts.connections.Load())
		s.Flows += uint64(w.counts.flows.Load())
	}
	return s
}
