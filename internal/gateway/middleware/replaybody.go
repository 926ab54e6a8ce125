package middleware

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
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
	// current is the reader of the last attempt.
	current atomic.Pointer[replayReader]
	// lost is true if more was read than is kept.
	lost atomic.Bool

	// mu is locked while the source is read, which may take as long as the client likes.
	mu     sync.Mutex
	source io.Reader
	kept   []byte
	read   int64
}

// reader returns the body for a new attempt, from its begin. It ends the reader before,
// which a goroutine of the proxy may still use.
func (b *replayBody) reader() io.ReadCloser {
	r := &replayReader{body: b}
	b.current.Store(r)
	return r
}

// replayable returns whether another attempt can read the body from its begin.
func (b *replayBody) replayable() bool { return !b.lost.Load() }

// replayReader is the body of one attempt.
type replayReader struct {
	body   *replayBody
	offset int64
}

// Read reads what is kept, then the source.
func (r *replayReader) Read(p []byte) (int, error) {
	b := r.body
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.current.Load() != r:
		return 0, errReplaced
	case b.lost.Load() && r.offset != b.read:
		return 0, errNotKept
	case r.offset < int64(len(b.kept)):
		n := copy(p, b.kept[r.offset:])
		r.offset += int64(n)
		return n, nil
	}
	n, err := b.source.Read(p)
	b.read += int64(n)
	r.offset += int64(n)
	switch {
	case b.read > b.limit:
		b.lost.Store(true)
		b.kept = nil
	case n > 0:
		b.kept = append(b.kept, p[:n]...)
	}
	return n, err
}

// Close does nothing: the server closes the body.
func (r *replayReader) Close() error { return nil }
