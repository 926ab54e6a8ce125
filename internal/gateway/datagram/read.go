package datagram

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"fairlead/internal/gateway/goroutine"
)

// Start forwards datagrams until Leave or Close. It calls failed if that is impossible.
func (e *Entry) Start(failed func(error)) {
	if err := wantLocal(e.conn); err != nil {
		failed(err)
		return
	}
	_ = e.conn.SetReadBuffer(1 << 20) // the kernel may limit it further
	e.running.Go("end silent sessions", e.expire)
	e.running.Go("forward the datagrams of clients", e.read)
}

// read forwards the clients' datagrams.
func (e *Entry) read() {
	buffer, control := make([]byte, largest), make([]byte, controlRoom)
	for {
		n, c, _, from, err := e.conn.ReadMsgUDPAddrPort(buffer, control)
		switch {
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return
		case err != nil:
			continue // an ICMP error for an earlier datagram
		}
		e.forward(buffer[:n], control[:c], from)
	}
}

// forward forwards a client's datagram. A mistake ends the client's session only.
func (e *Entry) forward(b, control []byte, from netip.AddrPort) {
	k := key{from, parseLocal(control)}
	defer goroutine.Recover("forward a client's datagram", func() { e.forget(k) })
	if s := e.session(k); s != nil {
		s.forward(b)
	}
}

// session returns the client's session: a new one if there is none, nil if there is no server or
// the client is an entry point.
func (e *Entry) session(k key) *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[k]; s != nil {
		return s
	}
	r := e.route()
	if r == nil || e.closed || e.own.has(k.client) {
		return nil
	}
	to := r.service.next()
	if to == nil {
		return nil
	}
	if len(e.sessions) >= e.most {
		e.evict()
	}
	s, err := newSession(e, k, to)
	if err != nil {
		return nil
	}
	s.place = e.unanswered.PushBack(s)
	s.used.Store(time.Now().UnixNano())
	e.sessions[k] = s
	e.count.Inc()
	e.changed(1)
	e.running.Go("forward the datagrams of a server", s.answer)
	return s
}
