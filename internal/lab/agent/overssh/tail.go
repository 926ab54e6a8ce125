package overssh

import (
	"strings"
	"sync"
)

// maxTail is the number of bytes that a tail keeps.
const maxTail = 2 << 10

// tail keeps the last bytes that are written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-maxTail):]
	return len(b), nil
}

// String returns the text on one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.FieldsFunc(string(t.text), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
