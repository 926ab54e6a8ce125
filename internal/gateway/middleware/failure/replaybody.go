package failure

import (
	"errors"
	"io"
	"sync"
	"time"

	"fairlead/internal/gateway/middleware/outcome"
)

var (
	// errReplaced is returned to an attempt that reads its body after the next one has begun.
	errReplaced = errors.New("the request is sent again")
	// errNotKept is returned to an attempt whose body the attempt before has read.
	errNotKept = errors.New("the request cannot be sent again: its body is too large")
)

// replayBody lets attempts read the same body, one after another. It keeps what the first
// one has read, up to a limit, while it streams.
type replayBody struct {
	limit int64

	// state protects the next three. It is never locked while the source is read, which may take as long as the
	// client likes.
	state sync.Mutex
	// current is the reader of the last attempt, nil after stop.
	current *replayReader
	// reading: the source is read. broken: it has failed, or more was read than is kept.
	reading, broken bool

	// The reader that is reading uses what follows.
	source io.Reader
	kept   []byte
	read   int64
}

// reader returns the body for a new attempt, from its begin. It ends the reader before,
// which a goroutine of the proxy may still use.
func (b *replayBody) reader() *replayReader {
	b.state.Lock()
	defer b.state.Unlock()
	b.current = &replayReader{body: b}
	return b.current
}

// stop ends the current reader, and returns true if another attempt can read the body from its begin. If the
// reader waits for the client, it returns false and changes nothing: the proxy interrupts that wait at the end of
// the attempt, and the body cannot be read any further then.
func (b *replayBody) stop() bool {
	b.state.Lock()
	defer b.state.Unlock()
	if b.reading || b.broken {
		return false
	}
	b.current = nil
	return true
}

// begin reports whether the reader may read the source now.
func (b *replayBody) begin(r *replayReader) bool {
	b.state.Lock()
	defer b.state.Unlock()
	if b.current != r {
		return false
	}
	b.reading = true
	return true
}

// end notes the outcome of reading the source.
func (b *replayBody) end(broken bool) {
	b.state.Lock()
	defer b.state.Unlock()
	b.reading, b.broken = false, b.broken || broken
}

// replayReader is the body of one attempt.
type replayReader struct {
	body   *replayBody
	offset int64
}

// Read reads what is kept, then the source.
func (r *replayReader) Read(p []byte) (int, error) {
	b := r.body
	if !b.begin(r) {
		return 0, errReplaced
	}
	broken := false
	defer func() { b.end(broken) }()
	if r.offset < b.read {
		if b.read > int64(len(b.kept)) {
			return 0, errNotKept
		}
		n := copy(p, b.kept[r.offset:])
		r.offset += int64(n)
		return n, nil
	}
	n, err := b.source.Read(p)
	b.read += int64(n)
	r.offset += int64(n)
	if b.read > b.limit {
		b.kept = nil
	} else if n > 0 {
		b.kept = append(b.kept, p[:n]...)
	}
	broken = b.read > b.limit || err != nil && err != io.EOF
	return n, err
}

// stopped returns true if the source belongs to a later attempt.
func (r *replayReader) stopped() bool {
	r.body.state.Lock()
	defer r.body.state.Unlock()
	return r.body.current != r
}

// LastRead returns when the last part came from the client.
func (r *replayReader) LastRead() time.Time { return outcome.LastRead(r.body.source) }

// Close does nothing: the server closes the body.
func (r *replayReader) Close() error { return nil }
