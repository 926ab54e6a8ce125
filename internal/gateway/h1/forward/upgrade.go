package forward

import (
	"bufio"
	"net/http"
	"time"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/h1/wire"
	"fairlead/internal/gateway/tunnel"
)

// switchProtocols passes on a response 101 and moves bytes both ways until both sides have ended.
//
// A server must not change the protocol before it has received the whole request (RFC 9110 7.8): what
// follows belongs to the other protocol. A response 101 to a request whose body is not complete is a fault
// of the server. The client gets 502 (Bad Gateway), and its connection closes, because the rest of the body
// is not read. Both connections belong to this goroutine only after the sender has ended.
func (x *exchange) switchProtocols(h response) *wire.Error {
	u := x.u
	if x.upgrade == "" || !wire.EqualFold(h.upgrade, x.upgrade) {
		return &wire.Error{Op: "read response", Sent: true,
			Err: wire.Malformed("the server changes to protocol %.40q, the client asked for %.40q", h.upgrade, x.upgrade)}
	}
	if s := x.sender; s != nil && !s.finish(x, false) {
		return &wire.Error{Op: "change the protocol", Sent: true, Client: true, Err: wire.ErrEarly}
	}
	client, rw, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return &wire.Error{Op: "take over the client's connection", Err: err, Sent: true}
	}
	defer client.Close()
	x.started = true
	u.end()
	u.taken = true
	x.pool.mu.Lock()
	x.pool.forget(u)
	x.pool.mu.Unlock()
	defer u.close()
	_ = client.SetDeadline(time.Time{})
	_ = u.Conn.SetDeadline(time.Time{})
	stop := goroutine.OnDone(x.r.Context(), "end an upgraded connection", func() {
		_ = client.Close()
		_ = u.Conn.Close()
	})
	defer stop()
	if _, err := client.Write(append(x.appendSwitch(h), u.Bytes()...)); err != nil {
		return x.writeFailed(err)
	}
	u.Release()
	if failed := x.sendBuffered(rw.Reader); failed != nil {
		return failed
	}
	tunnel.JoinMessages(x.r.Context(), client, u.Conn)
	return nil
}

// appendSwitch returns the head of the response 101.
func (x *exchange) appendSwitch(h response) []byte {
	own := x.w.Header()
	x.copyFields(own, h)
	out := append([]byte(nil), "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "...)
	out = append(out, h.upgrade...)
	out = append(out, '\r', '\n')
	// The values of the server are valid; those that a middleware has set are not sent if they are not.
	for key, values := range own {
		for _, v := range values {
			if wire.HopByHop(key) || !wire.All(key, wire.IsToken) || !wire.ValidValue(v) {
				continue
			}
			out = append(out, key...)
			out = append(out, ':', ' ')
			out = append(out, v...)
			out = append(out, '\r', '\n')
		}
	}
	return append(out, '\r', '\n')
}

// sendBuffered sends what the client has sent behind its request.
func (x *exchange) sendBuffered(from *bufio.Reader) *wire.Error {
	n := from.Buffered()
	if n == 0 {
		return nil
	}
	b, _ := from.Peek(n)
	if _, err := x.u.Conn.Write(b); err != nil {
		return &wire.Error{Op: "write request", Err: err, Sent: true, Started: true}
	}
	return nil
}
