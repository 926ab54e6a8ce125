package admission

import (
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The limits of copies for mirrors. MostCopy is the largest body that is copied if the user sets no limit. The others
// are for all services of the gateway: copies that wait for an answer, and the bytes of the bodies in memory.
const (
	MostCopy        = 8 << 20
	mostCopies      = 256
	mostCopiedBytes = 64 << 20
)

// Copies counts the copies of requests in progress. A mirror that is slow must not take the memory of the gateway.
type Copies struct {
	Log *slog.Logger
	// Dropped counts the copies that are not sent.
	Dropped        prometheus.Counter
	running, bytes atomic.Int64
	// logged is when a dropped copy was logged last, in seconds since 1970.
	logged atomic.Int64
}

// Begin counts a copy for a mirror of the service, and returns false if there are too many.
func (c *Copies) Begin(service string) bool {
	if c.running.Add(1) <= mostCopies {
		return true
	}
	c.End()
	c.Drop(service)
	return false
}

// End counts the end of a copy.
func (c *Copies) End() { c.running.Add(-1) }

// Drop counts and logs a copy that is not sent.
func (c *Copies) Drop(service string) {
	c.Dropped.Inc()
	now, last := time.Now().Unix(), c.logged.Load()
	if now-last > 60 && c.logged.CompareAndSwap(last, now) {
		c.Log.Warn("drop copies of requests: the mirrors are too slow", "service", service,
			"copies", c.running.Load(), "bytes", c.bytes.Load())
	}
}

// reserve counts bytes of a body, and returns false if there are too many.
func (c *Copies) reserve(n int) bool {
	if c.bytes.Add(int64(n)) <= mostCopiedBytes {
		return true
	}
	c.bytes.Add(-int64(n))
	return false
}

// ErrNoRoom is the error of a body for which there is no memory.
var ErrNoRoom = errors.New("the bodies of other copies have all memory")

// Body is the body of a request in memory. As a reader, it reserves the memory.
type Body struct {
	Copies *Copies
	Source io.Reader
	// Data is what was read.
	Data     []byte
	reserved int64
	// Users are the goroutines that need the data: the last one frees it.
	Users atomic.Int64
}

// keepStep is how much memory is reserved at once.
const keepStep = 32 << 10

// Read implements io.Reader.
func (k *Body) Read(p []byte) (int, error) {
	p = p[:min(len(p), keepStep)]
	if !k.Copies.reserve(len(p)) {
		return 0, ErrNoRoom
	}
	n, err := k.Source.Read(p)
	k.Copies.bytes.Add(int64(n - len(p)))
	k.reserved += int64(n)
	return n, err
}

// Leave says that a goroutine does not need the data any more.
func (k *Body) Leave() {
	if k.Users.Add(-1) == 0 {
		k.Copies.bytes.Add(-k.reserved)
	}
}
