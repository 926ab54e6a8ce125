package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/model"
)

// TestFailures checks that the kinds of failures of real servers are distinguished.
func TestFailures(t *testing.T) {
	closed := listen(t, "127.0.0.1:0", func(net.Conn) {})
	silent := listen(t, "127.0.0.1:0", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	garbage := listen(t, "127.0.0.1:0", func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	})
	refusing := closedPort(t)
	ill := Means{Container: func(context.Context, string) (bool, string, error) { return false, "ill", nil }}
	for _, c := range []struct {
		at    netip.AddrPort
		check model.Check
		want  Failure
	}{
		{refusing, model.Check{Type: model.CheckTCP}, Refused},
		{refusing, model.Check{Type: model.CheckDNS, Query: "a"}, Refused},
		{refusing, model.Check{Type: model.CheckUDP, Expect: "a"}, Refused},
		{closed, model.Check{Type: model.CheckHTTP}, Closed},
		{closed, model.Check{Type: model.CheckTCP, Expect: "a"}, Closed},
		{closed, model.Check{Type: model.CheckGRPC}, Closed},
		{silent, model.Check{Type: model.CheckHTTP}, Timeout},
		{silent, model.Check{Type: model.CheckHTTPS}, Timeout},
		{garbage, model.Check{Type: model.CheckHTTP}, WrongAnswer},
		{garbage, model.Check{Type: model.CheckGRPC}, WrongAnswer},
		{garbage, model.Check{Type: model.CheckHTTPS}, Insecure},
		{refusing, script("exit 1"), CommandFailed},
		{refusing, script("exec sleep 1000"), Timeout},
		{refusing, model.Check{Type: model.CheckDocker}, Unhealthy},
	} {
		one, err := New(c.check, ill)
		if err != nil {
			t.Fatal(err)
		}
		limit := 10 * time.Second
		if c.want == Timeout {
			limit = 50 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		if r := one.Check(ctx, Target{Real: c.at, Endpoint: "e1"}); r.OK || r.Void || r.Failure != c.want {
			t.Errorf("%s at %s: %+v, want %s", c.check.Type, c.at, r, c.want)
		}
		cancel()
	}
	for err, want := range map[error]Failure{
		syscall.EHOSTUNREACH: Unreachable, syscall.ENETUNREACH: Unreachable, os.ErrDeadlineExceeded: Timeout,
		syscall.ETIMEDOUT:  Timeout,
		syscall.ECONNRESET: Closed, io.ErrUnexpectedEOF: Closed, errors.New("what?"): WrongAnswer,
	} {
		if got := kindOf(t.Context(), "read", fmt.Errorf("read: %w", err)); got != want {
			t.Errorf("%v is %s, want %s", err, got, want)
		}
	}
}

// TestCounts checks that each server's checks are counted by result.
func TestCounts(t *testing.T) {
	inFarm(t, 0, func(t *testing.T, f *farm) {
		v := farmService("web", 2)
		v.Check.Passive = true
		f.set(f.ill, "e1", true)
		f.mustSet(t, v)
		f.monitor.Signal("web", v.Reals[1].At(0), Signal{Failed: 9})
		time.Sleep(2500 * time.Millisecond)
		got := f.monitor.CountsOf("web")
		one, two := got[v.Reals[0].At(0)], got[v.Reals[1].At(0)]
		if one.Made() != 3 || one.Failed[Unhealthy] != 3 || one.OK || one.Ejected != 0 {
			t.Errorf("the counts of the unhealthy server are %+v", one)
		}
		if two.Made() != 3 || two.Passed != 3 || !two.OK || two.Ejected != 1 {
			t.Errorf("the counts of the healthy server are %+v", two)
		}
		if f.monitor.CountsOf("mail") != nil {
			t.Error("a service that does not exist has counts")
		}
	})
}
