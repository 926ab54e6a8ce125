package transport

import "sync"

// bufferSize is the size of buffers for bodies.
const bufferSize = 64 << 10

// bufferPool implements httputil.BufferPool.
type bufferPool struct{ pool sync.Pool }

var buffers = &bufferPool{sync.Pool{New: func() any { return new([bufferSize]byte) }}}

// Get returns a buffer.
func (p *bufferPool) Get() []byte { return p.pool.Get().(*[bufferSize]byte)[:] }

// Put gives the buffer back.
func (p *bufferPool) Put(b []byte) {
	if cap(b) >= bufferSize {
		p.pool.Put((*[bufferSize]byte)(b[:bufferSize]))
	}
}
