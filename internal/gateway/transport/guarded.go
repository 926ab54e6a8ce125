package transport

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway/goroutine"
)

// earlyWait is how long a read of a request's body may take after the response.
const earlyWait = 50 * time.Millisecond

// guardedBody is a request's body while net/http forwards the request. The transport reads it on a goroutine that does
// not recover, and that can outlast the response. Nothing reads the body after Close: the last read sets the
// request's trailer, and a middleware may copy the request by then.
type guardedBody struct {
	from io.ReadCloser
	w    http.ResponseWriter
	// turn is full while the body is read.
	turn   chan struct{}
	ended  atomic.Bool
	closes sync.Once
}

// guard returns the body of a request whose response is w.
func guard(body io.ReadCloser, w http.ResponseWriter) *guardedBody {
	return &guardedBody{from: body, w: w, turn: make(chan struct{}, 1)}
}

// Read implements io.Reader.
func (b *guardedBody) Read(p []byte) (n int, err error) {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if b.ended.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	err = goroutine.ErrPanic // if it panics
	defer goroutine.Recover("read the body of a request")
	n, err = b.from.Read(p)
	return n, err
}

// Close implements io.Closer. It waits for a read, and interrupts one that takes long: the client may send slowly.
// The request's own body stays open unless its reads cannot be interrupted otherwise. Any goroutine may call Close.
func (b *guardedBody) Close() error {
	b.closes.Do(func() {
		b.ended.Store(true)
		timer := time.NewTimer(earlyWait)
		defer timer.Stop()
		select {
		case b.turn <- struct{}{}:
		case <-timer.C:
			if http.NewResponseController(b.w).SetReadDeadline(time.Unix(1, 0)) != nil {
				_ = b.from.Close()
			}
			b.turn <- struct{}{}
		}
		<-b.turn
	})
	return nil
}
