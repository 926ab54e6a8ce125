package gateway

import (
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The limits of copies for mirrors. mostCopy is the largest body that is copied if the user sets no limit. The others
// are for all services of the gateway: copies that wait for an answer, and the bytes of the bodies in memory.
const (
	mostCopy        = 8 << 20
	mostCopies      = 256
	mostCopiedBytes = 64 << 20
)

// copies counts the copies of requests in progress. A mirror that is slow must not take the memory of the gateway.
type copies struct {
	log            *slog.Logger
	dropped        prometheus.Counter
	running, bytes atomic.Int64
	// logged is when a dropped copy was logged last, in seconds since 1970.
	logged atomic.Int64
}

// begin counts a copy for a mirror of the service, and returns false if there are too many.
func (c *copies) begin(service string) bool {
	if c.running.Add(1) <= mostCopies {
		return true
	}
	c.end()
	c.drop(service)
	return false
}

func (c *copies) end() { c.running.Add(-1) }

// drop counts and logs a copy that is not sent.
func (c *copies) drop(service string) {
	c.dropped.Inc()
	now, last := time.Now().Unix(), c.logged.Load()
	if now-last > 60 && c.logged.CompareAndSwap(last, now) {
		c.log.Warn("drop copies of requests: the mirrors are too slow", "service", service,
			"copies", c.running.Load(), "bytes", c.bytes.Load())
	}
}

// reserve counts bytes of a body, and returns false if there are too many.
func (c *copies) reserve(n int) bool {
	if c.bytes.Add(int64(n)) <= mostCopiedBytes {
		return true
	}
	c.bytes.Add(-int64(n))
	return false
}

// errNoRoom is the error of a body for which there is no memory.
var errNoRoom = errors.New("the bodies of other copies have all memory")

// keptBody is the body of a request in memory. As a reader, it reserves the memory.
type keptBody struct {
	copies   *copies
	source   io.Reader
	data     []byte
	reserved int64
	// users are the goroutines that need the data: the last one frees it.
	users atomic.Int64
}

// keepStep is how much memory is reserved at once.
const keepStep = 32 << 10

// Read implements io.Reader.
func (k *keptBody) Read(p []byte) (int, error) {
	p = p[:min(len(p), keepStep)]
	if !k.copies.reserve(len(p)) {
		return 0, errNoRoom
	}
	n, err := k.source.Read(p)
	k.copies.bytes.Add(int64(n - len(p)))
	k.reserved += int64(n)
	return n, err
}

// leave says that a goroutine does not need the data any more.
func (k *keptBody) leave() {
	if k.users.Add(-1) == 0 {
		k.copies.bytes.Add(-k.reserved)
	}
}
