package h1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/gateway/h1/h1test"
	"fairlead/internal/gateway/h1/wire"
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

// TestLostBody moves a body to a server that has reset its connection. The kernel takes bytes from the client that
// nothing can read afterwards, so the begin of the next request is not known.
func TestLostBody(t *testing.T) {
	const length = wire.BufferSize
	near, client := h1test.TCPPair(t)
	server, far := h1test.TCPPair(t)
	_ = far.SetLinger(0)
	_ = far.Close()
	_, _ = server.Read(make([]byte, 1)) // until the reset is there
	go func() { _, _ = client.Write(make([]byte, 3*length)) }()
	s := &Server{}
	s.setClock()
	b := &requestBody{conn: newConn(s, near), left: length}
	if _, err := b.SpliceTo(server); err == nil {
		t.Fatal("the server has reset its connection")
	}
	if b.end() {
		t.Error("the next request is taken from an unknown place")
	}
}

// notCopied is a body of which only what is already in the buffer may be read.
type notCopied struct {
	*requestBody
	t *testing.T
}

func (b notCopied) Read(p []byte) (int, error) {
	if len(p) > b.Buffered() {
		b.t.Error("the body is copied through the gateway")
	}
	return b.requestBody.Read(p)
}

// TestLongBodyIsSpliced forwards a long body from a client to a server: the kernel moves it between the sockets.
func TestLongBodyIsSpliced(t *testing.T) {
	received := make(chan int64, 1)
	b := h1test.NewBackend(t, func(c net.Conn, br *bufio.Reader, _ int) {
		_, _ = h1test.ReadRequestHead(br)
		n, _ := io.CopyN(io.Discard, br, int64(len(text)))
		received <- n
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	pool := newPool(t, b.Addr)
	addr := serveHandler(t, func(w http.ResponseWriter, r *http.Request) {
		r.Body = notCopied{r.Body.(*requestBody), t}
		_ = pool.Forward(w, r, "")
	})
	request := fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	if got := exchangeText(t, addr, request); !strings.Contains(got, "200 OK") || <-received != int64(len(text)) {
		t.Errorf("the client got %q", got)
	}
}

// TestSlowServerIsNotASlowClient: a server that stops reading for longer than the client's time limit does not end a
// spliced body, whose next part the client has sent long ago.
func TestSlowServerIsNotASlowClient(t *testing.T) {
	const limit, length = 10, 64 << 20
	near, client := h1test.TCPPair(t)
	to, server := h1test.TCPPair(t)
	s := &Server{ReadTimeout: limit * time.Second}
	s.setClock()
	c := newConn(s, near)
	b := &requestBody{conn: c, left: length}
	ended := make(chan error, 1)
	go func() {
		_, err := b.SpliceTo(to)
		to.Close()
		ended <- errors.Join(err, b.err)
	}()
	go func() { _, _ = client.Write(make([]byte, length)) }()
	for last := (wire.Transferred{1}); !wire.Unread(c.socket) || last != wire.TransferredBy(c.socket); {
		last = wire.TransferredBy(c.socket)
		time.Sleep(100 * time.Millisecond) // until the server's buffers are full, nothing stays in this socket
	}
	for range 3 {
		s.now.Add(limit + 1)
		c.inspect()
	}
	n, _ := io.CopyN(io.Discard, server, length)
	if err := <-ended; n != length || !errors.Is(err, io.EOF) {
		t.Errorf("the server got %d of %d bytes: %v", n, length, err)
	}
}
