package middleware_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/model/gateway"
)

var long = strings.Repeat("the same line\n", 1000)

// decode returns the content of a compressed body.
func decode(t *testing.T, encoding string, body io.Reader) string {
	t.Helper()
	var err error
	switch encoding {
	case "gzip":
		body, err = gzip.NewReader(body)
	case "br":
		body = brotli.NewReader(body)
	case "zstd":
		body, err = zstd.NewReader(body)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// respond answers with a status, headers (NAME: VALUE) and the long text.
func respond(status int, text string, headers ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, header := range headers {
			name, value, _ := strings.Cut(header, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.Copy(w, strings.NewReader(text))
	})
}

func TestCompressEncodings(t *testing.T) {
	all := []string{"zstd", "br", "gzip"}
	for _, c := range []struct{ name, accept, want, fallback string }{
		{name: "gzip", accept: "gzip", want: "gzip"},
		{name: "br", accept: "br", want: "br"},
		{name: "zstd", accept: "zstd", want: "zstd"},
		{name: "first configured", accept: "gzip, deflate, br, zstd", want: "zstd"},
		{name: "weights", accept: "gzip;q=1.0, br;q=0.9, zstd; q=0.5", want: "gzip"},
		{name: "refused", accept: "zstd;q=0, br;q=0, *", want: "gzip"},
		{name: "any", accept: "*", want: "zstd"},
		{name: "any with a default", accept: "*", want: "br", fallback: "br"},
		{name: "none", accept: "deflate", want: ""},
		{name: "identity preferred", accept: "identity, gzip;q=0.5", want: ""},
		{name: "empty", accept: "", want: ""},
		{name: "broken weight", accept: "gzip;q=a, br;q=-1, zstd;q=2", want: ""},
		{name: "upper case", accept: "GZIP;Q=1", want: "gzip"},
	} {
		t.Run(c.name, func(t *testing.T) {
			value := gateway.Compress{Encodings: all, DefaultEncoding: c.fallback}
			server := serve(t, build(t, gateway.Middleware{Compress: &value}, middleware.Deps{})(respond(200, long,
				"Etag: \"x\"", "Accept-Ranges: bytes", fmt.Sprint("Content-Length: ", len(long)))))
			for range 2 { // The second one gets an encoder from the pool.
				response, body := request{header: map[string]string{"Accept-Encoding": c.accept}}.send(t, server.URL)
				h := response.Header
				if h.Get("Content-Encoding") != c.want || h.Get("Vary") != "Accept-Encoding" {
					t.Errorf("the headers are %v", h)
				}
				if decode(t, c.want, strings.NewReader(body)) != long {
					t.Error("the content differs")
				}
				if strong := h.Get("Etag") == `"x"`; strong != (c.want == "") ||
					(h.Get("Accept-Ranges") == "") == strong {
					t.Errorf("the headers are %v", h)
				}
			}
		})
	}
}

func TestCompressOnly(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler http.Handler
		value   gateway.Compress
		request request
		want    bool
	}{
		{name: "text", handler: respond(200, long), want: true},
		{name: "error", handler: respond(404, long), want: true},
		{name: "small", handler: respond(200, "small")},
		{name: "small with length", handler: respond(200, "small", "Content-Length: 5")},
		{name: "as configured", handler: respond(200, "small"), want: true,
			value: gateway.Compress{MinResponseBodyBytes: 3}},
		{name: "encoded", handler: respond(200, long, "Content-Encoding: br")},
		{name: "partial", handler: respond(206, long, "Content-Range: bytes 0-9/10")},
		{name: "range", handler: respond(416, long, "Content-Range: bytes */10")},
		{name: "no transform", handler: respond(200, long, "Cache-Control: private, no-transform")},
		{name: "events", handler: respond(200, long, "Content-Type: text/event-stream")},
		{name: "grpc", handler: respond(200, long, "Content-Type: application/grpc+proto")},
		{name: "image", handler: respond(200, long, "Content-Type: image/png")},
		{name: "drawing", handler: respond(200, long, "Content-Type: image/svg+xml"), want: true},
		{name: "broken type", handler: respond(200, long, "Content-Type: a/b/c")},
		{name: "excluded", handler: respond(200, long, "Content-Type: text/css; charset=utf-8"),
			value: gateway.Compress{ExcludedContentTypes: []string{"text/css"}}},
		{name: "included", handler: respond(200, long, "Content-Type: image/png"), want: true,
			value: gateway.Compress{IncludedContentTypes: []string{"image/png"}}},
		{name: "not included", handler: respond(200, long, "Content-Type: text/html"),
			value: gateway.Compress{IncludedContentTypes: []string{"image/png"}}},
		{name: "request type excluded", handler: respond(200, long),
			value:   gateway.Compress{ExcludedContentTypes: []string{"a/b"}},
			request: request{header: map[string]string{"Content-Type": "a/b"}}},
		{name: "upgrade", handler: respond(200, long), request: request{header: map[string]string{"Upgrade": "x"}}},
		{name: "head", handler: respond(200, long), request: request{method: "HEAD"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := serve(t, build(t, gateway.Middleware{Compress: &c.value}, middleware.Deps{})(c.handler))
			if c.request.header == nil {
				c.request.header = map[string]string{}
			}
			c.request.header["Accept-Encoding"] = "gzip"
			response, _ := c.request.send(t, server.URL)
			if got := response.Header.Get("Content-Encoding") == "gzip"; got != c.want {
				t.Errorf("compressed: %v, want %v", got, c.want)
			}
		})
	}
}

// TestCompressStreams checks that each flushed part arrives, before the handler ends.
func TestCompressStreams(t *testing.T) {
	next := make(chan string)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for part := range next {
			fmt.Fprint(w, part)
			_ = http.NewResponseController(w).Flush()
		}
	})
	server := serve(t, build(t, gateway.Middleware{Compress: &gateway.Compress{}}, middleware.Deps{})(handler))
	req, _ := http.NewRequest("GET", server.URL, nil)
	req.Header.Set("Accept-Encoding", "gzip")
	go func() { next <- "one" }()
	response, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := gzip.NewReader(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"one", "two"} {
		got := make([]byte, len(part))
		if _, err := io.ReadFull(body, got); err != nil || string(got) != part {
			t.Fatalf("got %q, %v", got, err)
		}
		if part == "one" {
			next <- "two"
		}
	}
	close(next)
	if rest, err := io.ReadAll(body); err != nil || len(rest) > 0 {
		t.Errorf("got %q, %v", rest, err)
	}
}

// TestCompressAbort checks that the client notices a body that the handler has cut.
func TestCompressAbort(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, long)
		panic(http.ErrAbortHandler)
	})
	server := serve(t, build(t, gateway.Middleware{Compress: &gateway.Compress{}}, middleware.Deps{})(handler))
	req, _ := http.NewRequest("GET", server.URL, nil)
	req.Header.Set("Accept-Encoding", "gzip")
	response, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return // The head was not sent yet.
	}
	defer response.Body.Close()
	var text bytes.Buffer
	body, err := gzip.NewReader(response.Body)
	if err == nil {
		_, err = io.Copy(&text, body)
	}
	if err == nil {
		t.Errorf("the body of %d bytes ends without an error", text.Len())
	}
}
