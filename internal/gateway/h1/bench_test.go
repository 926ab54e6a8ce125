package h1

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"fairlead/internal/gateway/h1/forward"
	"fairlead/internal/gateway/h1/h1test"
)

// BenchmarkForward measures requests through a gateway over loopback, with the client and the server in
// the same process: compare the sub-benchmarks with each other only.
func BenchmarkForward(b *testing.B) {
	response := "HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: text/plain\r\nContent-Length: 65\r\n\r\n" +
		strings.Repeat("x", 65)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answers(response)(c, bufio.NewReader(c), 0)
		}
	}()
	pool := &forward.Pool{Dial: h1test.Dialer(l.Addr().String())}
	defer pool.Close()
	forward := &forwarder{pool: pool}
	b.Run("h1", func(b *testing.B) {
		front, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer front.Close()
		go func() { _ = (&Server{Handler: forward}).Serve(front) }()
		benchRequests(b, front.Addr().String())
	})
	target := &url.URL{Scheme: "http", Host: l.Addr().String()}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: &http.Transport{MaxIdleConnsPerHost: 200}}
	for name, h := range map[string]http.Handler{"net-http": forward, "ReverseProxy": proxy} {
		b.Run(name, func(b *testing.B) {
			s := httptest.NewServer(h)
			defer s.Close()
			benchRequests(b, s.Listener.Addr().String())
		})
	}
}

// benchRequests sends b.N requests on parallel connections.
func benchRequests(b *testing.B, addr string) {
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		br := bufio.NewReader(c)
		for pb.Next() {
			if _, err := io.WriteString(c, h1test.Get); err != nil {
				b.Error(err)
				return
			}
			head, err := h1test.ReadRequestHead(br)
			if err != nil || !strings.HasPrefix(head, "HTTP/1.1 200") {
				b.Errorf("got %q, error %v", head, err)
				return
			}
			if _, err := br.Discard(65); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
