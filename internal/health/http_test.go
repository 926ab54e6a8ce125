package health

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/model"
)

// patient is a connection whose reads have no deadline: a busy machine can take longer than
// finishTimeout.
type patient struct{ net.Conn }

func (patient) SetReadDeadline(time.Time) error { return nil }

// TestRestOfAnswerIsRead checks that the check reads the answer after its header, too.
func TestRestOfAnswerIsRead(t *testing.T) {
	checker, err := New(model.Check{Type: model.CheckHTTP}, Means{})
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan error, 1)
	dial := func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe() // a write returns when its data was read
		go func() {
			defer theirs.Close()
			_, err := http.ReadRequest(bufio.NewReader(theirs))
			for _, part := range []string{"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", "one", "two"} {
				if err == nil {
					_, err = io.WriteString(theirs, part)
				}
			}
			said <- err
		}()
		return patient{ours}, nil
	}
	if r := checker.Check(t.Context(), Target{Real: netip.MustParseAddrPort("192.0.2.1:80"), Dial: dial}); !r.OK {
		t.Errorf("the check fails: %+v", r)
	}
	if err := <-said; err != nil {
		t.Errorf("the server could not send the whole answer: %v", err)
	}
}
