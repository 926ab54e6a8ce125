package h2

import (
	"io"
	"net"
	"testing"
)

type faulty struct{ net.Conn }

func (faulty) Read([]byte) (int, error) { panic("a mistake in Read") }

// TestPanicEndsTheConnection: the library reads a connection on a goroutine that does not recover.
func TestPanicEndsTheConnection(t *testing.T) {
	near, far := net.Pipe()
	if _, err := New(faulty{near}, func() {}).Read(make([]byte, 10)); err != errFault {
		t.Errorf("Read returned %v", err)
	}
	if _, err := far.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the other end got %v, want the end", err)
	}
}
