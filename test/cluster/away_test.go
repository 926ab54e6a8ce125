package cluster_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/frontend/admin"
	"fairlead/test/place"
)

// awayFor is the environment variable with the time for which TestLongAway keeps etcd away at least. With it, the
// test fails if the hosts have not the same records convergedLimit after etcd answers.
const (
	awayFor        = "FAIRLEAD_AWAY"
	convergedLimit = 2 * time.Second
)

// streamEvery is the time between two messages of a stream.
const streamEvery = 10 * time.Millisecond

// stream is a flow between two sandboxes: numbered messages, which the other end returns.
type stream struct {
	*lan
	name           string
	conn           net.Conn
	sent, returned atomic.Int64
	// longest is the longest time without a message, in nanoseconds.
	longest       atomic.Int64
	stop, stopped chan struct{}
}

// stream starts a flow with a protocol, tcp or udp.
func (l *lan) stream(protocol string, from, to box) *stream {
	l.Helper()
	place.Serve(l, to.Do, ":81", place.Echo)
	place.ServeUDP(l, to.Do, ":81", place.EchoDatagram)
	conn, err := place.Dial(from.Do, protocol, net.JoinHostPort(to.addr.String(), "81"), place.Timeout)
	if err != nil {
		l.Fatal(err)
	}
	s := &stream{lan: l, name: fmt.Sprintf("%s from %s to %s", protocol, from.addr, to.addr), conn: conn,
		stop: make(chan struct{}), stopped: make(chan struct{})}
	go s.send()
	go s.receive()
	l.Cleanup(func() { conn.Close() })
	return s
}

// send sends messages until stop is closed.
func (s *stream) send() {
	defer close(s.stopped)
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.stop:
			return
		}
		message := binary.BigEndian.AppendUint64(nil, uint64(s.sent.Load()))
		if _, err := s.conn.Write(message); err != nil {
			s.Errorf("%s: send message %d: %v", s.name, s.sent.Load(), err)
			return
		}
		s.sent.Add(1)
	}
}

// receive counts the messages that come back, until the connection is closed.
func (s *stream) receive() {
	seen := map[uint64]bool{}
	message := make([]byte, 8)
	for last := time.Now(); ; last = time.Now() {
		if _, err := io.ReadFull(s.conn, message); err != nil {
			return // end reports what is missing
		}
		if n := binary.BigEndian.Uint64(message); !seen[n] {
			seen[n] = true
			s.returned.Add(1)
		}
		s.longest.Store(max(s.longest.Load(), int64(time.Since(last))))
	}
}

// continues waits until more messages have come back.
func (s *stream) continues(more int64) {
	s.Helper()
	until := s.returned.Load() + more
	s.until(s.name+" continues", func() bool { return s.returned.Load() >= until })
}

// end ends the flow. The test fails if a message was lost.
func (s *stream) end() {
	s.Helper()
	close(s.stop)
	<-s.stopped
	for end := time.Now().Add(place.Timeout); s.returned.Load() < s.sent.Load() && time.Now().Before(end); {
		time.Sleep(streamEvery)
	}
	sent, lost := s.sent.Load(), s.sent.Load()-s.returned.Load()
	s.Logf("%s: %d messages sent, %d lost, at most %s without one", s.name, sent, lost,
		time.Duration(s.longest.Load()).Round(time.Millisecond))
	if lost > 0 || sent == 0 {
		s.Errorf("%s: %d of %d messages were lost", s.name, lost, sent)
	}
}

// TestLongAway keeps etcd away, and restarts and kills all daemons meanwhile. No message of a flow between
// two hosts is lost, and new sandboxes get addresses. When etcd is back, all hosts have the same records.
// FAIRLEAD_AWAY=10m keeps it away for ten minutes, and limits the time until then.
func TestLongAway(t *testing.T) {
	away := time.Duration(0)
	if text := os.Getenv(awayFor); text != "" {
		var err error
		if away, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	l := newLAN(t)
	l.joined()
	l.hosts[0].Run("network", "create", "shop", "--cluster", "--driver", "vxlan", "--subnet", "10.9.0.0/16",
		"--block-size", "28")
	var first, late []box
	for _, h := range l.hosts {
		l.until(h.name+" has the network", h.has)
		first = append(first, l.box(h))
	}
	streams := []*stream{l.stream("tcp", first[0], first[1]), l.stream("udp", first[1], first[2])}
	l.etcd.Members[0].Kill()
	gone := time.Now()
	restarts := []func(*host){func(h *host) { h.Stop() }, func(h *host) { h.Kill() }}
	for n, end := range restarts {
		for i, h := range l.hosts {
			end(h)
			h.Start()
			l.until(h.name+" has the network from the disk", h.has)
			b := l.box(h)
			l.reaches(first[(i+1)%len(first)], b)
			l.reaches(b, first[(i+2)%len(first)])
			late = append(late, b)
			time.Sleep(time.Until(gone.Add(away * time.Duration(n*len(l.hosts)+i+1) / 6)))
		}
	}
	t.Logf("etcd was away for %s, with %d restarts of daemons", time.Since(gone).Round(time.Second), len(late))
	l.etcd.Members[0].Start()
	l.etcd.Leader()
	back := time.Now()
	for ; !l.converged(first, late); time.Sleep(10 * time.Millisecond) {
		if time.Since(back) > place.Timeout {
			t.Fatal("the hosts do not have the same records")
		}
	}
	took := time.Since(back)
	t.Logf("all hosts have the same records %s after etcd answers", took.Round(time.Millisecond))
	if away > 0 && took > convergedLimit {
		t.Errorf("want the same records after at most %s", convergedLimit)
	}
	for _, s := range streams {
		s.end()
	}
}

// converged reports whether all hosts have the same revision, and sandboxes on all hosts find all late ones
// by their names.
func (l *lan) converged(first, late []box) bool {
	revisions := map[int64]bool{}
	for _, h := range l.hosts {
		s, err := admin.ShowCluster.Do(l.Context(), h.Client)
		if err != nil || !s.Etcd.Connected {
			return false
		}
		revisions[s.Etcd.Revision] = true
	}
	for _, from := range first {
		for _, to := range late {
			if got := l.lookUp(from, to); len(got) != 1 || got[0] != to.addr.String() {
				return false
			}
		}
	}
	return len(revisions) == 1
}
