package proxy

import (
	"sync/atomic"
	"time"

	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// tally counts forwarded bytes, datagrams, connections and flows. Only its worker
// writes it, except when another worker moves a connection to it, so additions
// rarely contend.
type tally struct {
	bytesIn, bytesOut         atomic.Uint64
	accepted                  atomic.Uint64
	datagramsIn, datagramsOut atomic.Uint64
	connections, flows        atomic.Int64
	opened                    atomic.Uint64 // flows
}

// moved counts payload bytes in direction d.
func (t *tally) moved(d direction, n int) {
	if d == inward {
		t.bytesIn.Add(uint64(n))
	} else {
		t.bytesOut.Add(uint64(n))
	}
}

// addTo adds the tally to a sum.
func (t *tally) addTo(s *model.ProxyStats) {
	s.BytesIn += t.bytesIn.Load()
	s.BytesOut += t.bytesOut.Load()
	s.Accepted += t.accepted.Load()
	s.Opened += t.opened.Load()
	s.DatagramsIn += t.datagramsIn.Load()
	s.DatagramsOut += t.datagramsOut.Load()
	s.Connections += uint64(t.connections.Load())
	s.Flows += uint64(t.flows.Load())
}

// counters has the counters of one worker. The padding keeps the counters of
// different workers in different cache lines.
type counters struct {
	_ [64]byte
	tally
	// bulk is the number of directions of connections that have a pipe.
	bulk atomic.Int64
	_    [64]byte
}

// moved counts payload bytes of a listener in direction d.
func (w *worker) moved(g *group, d direction, n int) {
	w.counts.moved(d, n)
	g.counts[w.id].moved(d, n)
}

// sent counts datagrams of a listener in direction d, and their bytes.
func (w *worker) sent(g *group, d direction, datagrams, bytes int) {
	w.moved(g, d, bytes)
	for _, t := range []*tally{&w.counts.tally, &g.counts[w.id]} {
		if d == inward {
			t.datagramsIn.Add(uint64(datagrams))
		} else {
			t.datagramsOut.Add(uint64(datagrams))
		}
	}
}

// connected counts one more connection of a listener, or one less.
func (w *worker) connected(g *group, n int64) {
	w.counts.connections.Add(n)
	g.counts[w.id].connections.Add(n)
}

// flowing counts one more flow of a listener, or one less.
func (w *worker) flowing(g *group, n int64) {
	for _, t := range []*tally{&w.counts.tally, &g.counts[w.id]} {
		t.flows.Add(n)
		if n > 0 {
			t.opened.Add(1)
		}
	}
}

// total adds up the workers' counters.
func total(workers []*worker) model.ProxyStats {
	var s model.ProxyStats
	for _, w := range workers {
		w.counts.addTo(&s)
	}
	return s
}

// cpuSeconds returns the CPU time of this process.
func cpuSeconds() float64 {
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used) // it fails for unknown arguments only
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}
