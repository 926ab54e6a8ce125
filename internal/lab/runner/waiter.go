package runner

import (
	"bytes"
	"sync"
)

// waiter is an output that closes seen when want has been written to it.
type waiter struct {
	want string
	seen chan struct{}

	mu   sync.Mutex
	buf  bytes.Buffer
	done bool
}

// Write implements io.Writer.
func (w *waiter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return len(p), nil
	}
	w.buf.Write(p)
	if bytes.Contains(w.buf.Bytes(), []byte(w.want)) {
		w.done = true
		close(w.seen)
	}
	return len(p), nil
}

func (w *waiter) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}
