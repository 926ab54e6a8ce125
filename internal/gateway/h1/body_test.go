package h1

import (
	"bufio"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// TestLateDeadline ends a request while a goroutine of its handler reads the body to its end: the deadline
// that interrupts such a read must not concern the next request.
func TestLateDeadline(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	s := &Server{}
	s.setClock()
	interrupted := make(chan struct{})
	c := newConn(s, &signalling{Conn: near, set: interrupted})
	b := &requestBody{conn: c, left: 1}
	c.body = b
	b.mu.Lock()
	go func() {
		<-interrupted
		b.ends(io.EOF)
		b.mu.Unlock()
	}()
	c.w.closing = false
	if !c.next() {
		t.Fatal("the connection must serve the next request")
	}
	go func() { _, _ = io.WriteString(far, "x") }()
	if _, err := bufio.NewReader(near).ReadByte(); err != nil {
		t.Errorf("read the next request: %v", err)
	}
}

// signalling closes set at the first deadline.
type signalling struct {
	net.Conn
	set  chan struct{}
	once sync.Once
}

func (s *signalling) SetReadDeadline(t time.Time) error {
	err := s.Conn.SetReadDeadline(t)
	s.once.Do(func() { close(s.set) })
	return err
}
