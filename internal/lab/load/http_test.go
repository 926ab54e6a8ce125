package load_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"fairlead/internal/lab/load"
)

// httpScenarios returns the workloads over HTTP without TLS.
func httpScenarios() map[string]load.Spec {
	return map[string]load.Spec{
		"http-rr":           {Workload: load.HTTPRR, Streams: 5},
		"http-rr at a rate": {Workload: load.HTTPRR, Streams: 5, Rate: 100},
		"http-crr":          {Workload: load.HTTPCRR, Streams: 5},
		"http-down":         {Workload: load.HTTPDown, Streams: 2, Size: 1 << 20},
		"http-up":           {Workload: load.HTTPUp, Streams: 2, Size: 1 << 20},
		"ws-rr":             {Workload: load.WSRR, Streams: 5},
		"idle-conns":        {Workload: load.HTTPIdle, Streams: 300},
	}
}

func TestEveryHTTPWorkloadCounts(t *testing.T) {
	p := newPair(t, newNetns(t))
	for _, ip := range []string{v4, v6} {
		target := p.listen(t, ip)
		for name, s := range httpScenarios() {
			t.Run(ip+" "+name, func(t *testing.T) { checkHTTP(t, p.run(t, target, short(s))) })
		}
	}
}

// TestTLSIsServedBesideHTTP: requests with TLS go to the port that the client dials,
// which is not that of the server's listener.
func TestTLSIsServedBesideHTTP(t *testing.T) {
	p := newPair(t, newNetns(t))
	plain := p.listen(t, v4)
	secure := netip.AddrPortFrom(plain.Addr(), plain.Port()^1)
	for name, s := range map[string]load.Spec{
		"https-rr":  {Workload: load.HTTPRR, Streams: 3, TLS: true},
		"https-crr": {Workload: load.HTTPCRR, Streams: 3, TLS: true},
		"h2-rr":     {Workload: load.HTTPRR, Streams: 2, TLS: true, Multiplex: 4},
	} {
		t.Run(name, func(t *testing.T) { checkHTTP(t, p.run(t, secure, short(s))) })
	}
}

// checkHTTP checks that every request has got its answer, and that both sides have
// counted it and its body.
func checkHTTP(t *testing.T, m load.Measurement) {
	t.Helper()
	c, s := m.ClientTotals, m.ServerTotals
	if c.Transactions == 0 || c.Transactions != s.Transactions || m.Errors+c.Errors+s.Errors > 0 {
		t.Errorf("client %+v, server %+v, %d errors", c, s, m.Errors)
	}
	if c.ReceivedBytes != s.SentBytes || s.ReceivedBytes != c.SentBytes {
		t.Errorf("bytes were lost: client %+v, server %+v", c, s)
	}
	if len(m.Sources) != 1 {
		t.Errorf("the server has got requests from %v", m.Sources)
	}
	metrics := m.Metrics()
	var want []string
	switch m.Spec.Workload {
	case load.HTTPIdle:
		if got := c.Transactions; got != uint64(m.Spec.Streams) {
			t.Errorf("%d requests on %d connections", got, m.Spec.Streams)
		}
	case load.HTTPDown, load.HTTPUp:
		want = []string{"throughput"}
	default:
		want = []string{"request_rate", "latency_p50", "latency_p99", "latency_p999"}
	}
	if len(metrics) < len(want) {
		t.Errorf("metrics %v, want %v", metrics, want)
	}
	for name, v := range metrics {
		if v <= 0 {
			t.Errorf("%s = %g", name, v)
		}
	}
	if m.Spec.Rate > 0 && len(m.Latency.Service) == 0 {
		t.Error("no service times at a fixed rate")
	}
}

// TestWrongAnswersFailTheRun: an answer that is not the server's is an error, and not a
// fast answer.
func TestWrongAnswersFailTheRun(t *testing.T) {
	ns := newNetns(t)
	p := newPair(t, ns)
	good := p.listen(t, v4)
	for answer, want := range map[string]string{
		"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n":          `want the answer 200, got "HTTP/1.1 502`,
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab":                 "longer than its Content-Length",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": "no Content-Length",
		"HTTP/1.1 200 OK\r\n\r\n":                                        "no Content-Length",
		"HTTP/1.1 200 OK\r\nContent-Length: no\r\n\r\n":                  "read Content-Length",
		"": "closed by the peer",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 16<<10): "more than 16384 bytes",
	} {
		t.Run(fmt.Sprintf("%.40q", answer), func(t *testing.T) {
			var l net.Listener
			within(t, ns, func() (err error) {
				l, err = net.Listen("tcp4", net.JoinHostPort(v4, "0"))
				return err
			})
			defer l.Close()
			go answerAll(l, answer)
			target := netip.MustParseAddrPort(l.Addr().String())
			spec := short(load.Spec{Workload: load.HTTPRR})
			_, err := load.Run(t.Context(), p.client, p.server, target, spec, load.Hooks{})
			var side *load.Error
			if !errors.As(err, &side) || side.Side != load.ClientSide || !strings.Contains(err.Error(), want) {
				t.Fatalf("got %v, want %q from the client", err, want)
			}
			p.run(t, good, spec) // the children have recovered
		})
	}
}

// TestRunsLeaveNoSourcePortInUse: the client has hardly more source ports than a run
// needs connections, so each run needs the ports of the one before.
func TestRunsLeaveNoSourcePortInUse(t *testing.T) {
	ns := newNetns(t)
	within(t, ns, func() error {
		// Between other hosts than one with itself, ports in TIME_WAIT are not reused.
		return errors.Join(os.WriteFile("/proc/sys/net/ipv4/tcp_tw_reuse", []byte("0"), 0),
			os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40099"), 0))
	})
	for name, s := range map[string]load.Spec{
		"idle-conns": {Workload: load.HTTPIdle, Streams: 80},
		"http-rr":    {Workload: load.HTTPRR, Streams: 80},
		"http-crr":   {Workload: load.HTTPCRR, Streams: 2},
		"https-crr":  {Workload: load.HTTPCRR, Streams: 2, TLS: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, ns)
			target := p.listen(t, v4)
			if s.TLS {
				target = netip.AddrPortFrom(target.Addr(), target.Port()^1)
			}
			for connections := uint64(0); connections < 300; {
				m := p.run(t, target, short(s))
				connections += max(m.ClientTotals.Connections, uint64(s.Streams))
			}
		})
	}
}

// answerAll sends each client an answer and closes the connection.
func answerAll(l net.Listener, answer string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Read(make([]byte, 4096)) // whatever it is
		_, _ = io.WriteString(conn, answer)
		_ = conn.(*net.TCPConn).CloseWrite()
		time.AfterFunc(time.Second, func() { conn.Close() })
	}
}

// TestTooHighRateIsReported: requests that wait for a connection at the end mean that
// the path has not carried the rate.
func TestTooHighRateIsReported(t *testing.T) {
	p := newPair(t, newNetns(t))
	target := p.listen(t, v4)
	_, err := load.Run(t.Context(), p.client, p.server, target,
		short(load.Spec{Workload: load.HTTPRR, Streams: 1, Rate: 10e6}), load.Hooks{})
	if err == nil || !strings.Contains(err.Error(), "does not carry the rate") {
		t.Fatalf("got %v", err)
	}
}
