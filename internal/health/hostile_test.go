package health

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"fairlead/internal/model"
)

// hostile are servers that send invalid answers until the connection is closed.
var hostile = map[string]func(c net.Conn){
	"closes at once": func(net.Conn) {},
	"never answers":  func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
	"closes late":    func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) },
	"garbage":        func(c net.Conn) { repeat(c, "\x00\xff\x1b[2J\u202e\r\n\r\n", 1<<30) },
	"short garbage":  func(c net.Conn) { repeat(c, "\x00\xff\x1b[2J", 1) },
	"a slow drip": func(c net.Conn) {
		for text := "HTTP/1.1 200 OK\r\nX: "; ; text = "x" {
			for i := range text {
				if _, err := io.WriteString(c, text[i:i+1]); err != nil {
					return
				}
			}
		}
	},
	"a body of a gigabyte": func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
		repeat(c, "aaaaaaaaaaaaaaaa", 1<<30)
	},
	"a body of tiny chunks": func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		repeat(c, "1\r\na\r\n", 1<<30)
	},
	"endless headers": func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		repeat(c, "X-Name: value\r\n", 1<<30)
	},
	"an endless header":    func(c net.Conn) { repeat(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("a", 1000), 1<<30) },
	"an endless status":    func(c net.Conn) { repeat(c, "HTTP/1.1 200 "+strings.Repeat("OK", 1000), 1<<30) },
	"endless continues":    func(c net.Conn) { repeat(c, "HTTP/1.1 100 Continue\r\n\r\n", 1<<30) },
	"HTTP/0.9":             func(c net.Conn) { _, _ = io.WriteString(c, "<html>It works!</html>") },
	"a negative length":    func(c net.Conn) { repeat(c, "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 1) },
	"invalid TLS":          func(c net.Conn) { repeat(c, "\x16\x03\x03\x40\x00\x02\x00\xff\xff", 1<<30) },
	"half a handshake":     halfHandshake,
	"endless settings":     func(c net.Conn) { frames(c, 4, "\x00\x03\x00\x00\x00\x64") },
	"endless pings":        func(c net.Conn) { frames(c, 6, "12345678") },
	"frames of no type":    func(c net.Conn) { frames(c, 99, "what?") },
	"headers of no stream": func(c net.Conn) { frames(c, 1, "\x88") },
	"endless name":         func(c net.Conn) { frames(c, 9, strings.Repeat("a", 16000)) },
	"too large a frame":    func(c net.Conn) { repeat(c, "\xff\xff\xff\x00\x00\x00\x00\x00\x01", 1<<30) },
}

// repeat writes a text the given number of times, or until the peer closes.
func repeat(c net.Conn, text string, times int) {
	block := []byte(text)
	if times > 1000 {
		block = bytes.Repeat(block, max(1, 4096/len(text)))
	}
	for range times {
		if _, err := c.Write(block); err != nil {
			return
		}
	}
	_, _ = io.Copy(io.Discard, c)
}

// frames writes HTTP/2 frames without end, after correct settings.
func frames(c net.Conn, kind byte, payload string) {
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind)), 0, 0, 0, 0, 1)
	if kind == 4 || kind == 6 {
		frame[8] = 0 // of the connection, not of a stream
	}
	_, _ = c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
	repeat(c, string(frame)+payload, 1<<30)
}

func halfHandshake(c net.Conn) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.StartTLS() // for its certificate
	s.Close()
	config := s.TLS.Clone()
	server := tls.Server(&cutShort{Conn: c, left: 600}, config)
	_ = server.Handshake()
	_, _ = io.Copy(io.Discard, c)
}

// cutShort writes the given number of bytes and discards the rest.
type cutShort struct {
	net.Conn
	left int
}

func (c *cutShort) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.left -= n
	if _, err := c.Conn.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// TestHostile checks that a server with invalid answers fails its check, within the
// timeout, with a detail of one line. Only a limited number of bytes is read from it.
func TestHostile(t *testing.T) {
	checks := map[string]model.Check{
		"tcp":     {Type: model.CheckTCP, Expect: "^welcome"},
		"tls":     {Type: model.CheckTCP, TLS: true},
		"http":    {Type: model.CheckHTTP, Body: "^welcome"},
		"https":   {Type: model.CheckHTTPS},
		"grpc":    {Type: model.CheckGRPC},
		"grpctls": {Type: model.CheckGRPC, TLS: true},
		"agent":   {Agent: 1},
	}
	for name, serve := range hostile {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			at := Target{Real: listen(t, "127.0.0.1:0", serve)}
			for kind, c := range checks {
				if kind == "agent" {
					c.Agent = at.Real.Port()
				}
				var read atomic.Int64
				at.Dial = counting(&read)
				one, err := New(c, Means{})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				r := one.Check(ctx, at)
				cancel()
				if r.OK || r.Detail == "" || r.Detail != oneLine(r.Detail) ||
					utf8.RuneCountInString(r.Detail) > detailLimit+1 {
					t.Errorf("%s: %+v", kind, r)
				}
				if n := read.Load(); n > readLimit {
					t.Errorf("%s: %d bytes were read", kind, n)
				}
			}
		})
	}
}

// counting is a dialer that counts the bytes that are read from its connections.
func counting(read *atomic.Int64) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return counted{c, read}, err
	}
}

type counted struct {
	net.Conn
	read *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "",
		"fine":                    "fine",
		"two\r\nlines\tand\u0085": "two lines and",
		"\x1b[31mred\x00\u202e":   "?[31mred??",
		"\xff\xfe":                "??",
		strings.Repeat("ä", 121):  strings.Repeat("ä", 120) + "…",
		strings.Repeat("a", 9999): strings.Repeat("a", 120) + "…",
	} {
		if got := oneLine(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
