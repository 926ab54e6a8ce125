package gateway_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// faultyClient does something wrong with a request to the URL. It returns when the gateway has noticed.
type faultyClient struct {
	name string
	// over are the protocols; empty: all.
	over []string
	do   func(w *faultWorld, client *http.Client, protocol, host, url string)
}

var faultyClients = []faultyClient{
	{"malformed chunk", []string{"HTTP/1.1", "HTTP/1.1 TLS"}, func(w *faultWorld, _ *http.Client, p, host, url string) {
		w.raw(p, host, url, "POST", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nXYZ\r\n")
	}},
	{"malformed first chunk", []string{"HTTP/1.1"}, func(w *faultWorld, _ *http.Client, p, host, url string) {
		w.raw(p, host, url, "POST", "Transfer-Encoding: chunked\r\n\r\nXYZ\r\n")
	}},
	{"end within a short body", []string{"HTTP/1.1", "HTTP/1.1 TLS"}, func(w *faultWorld, _ *http.Client, p, host,
		url string) {
		w.raw(p, host, url, "POST", "Content-Length: 100\r\n\r\nhello")
	}},
	{"end within a long body", []string{"HTTP/1.1", "HTTP/1.1 TLS"}, func(w *faultWorld, _ *http.Client, p, host,
		url string) {
		w.raw(p, host, url, "POST", "Content-Length: 1000000\r\n\r\n"+strings.Repeat("x", 100_000))
	}},
	{"body shorter than its length", []string{"HTTP/2"}, func(w *faultWorld, _ *http.Client, _, host, url string) {
		w.shortBody(host, url)
	}},
	{"abort of an upload", nil, func(w *faultWorld, client *http.Client, _, host, url string) {
		body := io.MultiReader(strings.NewReader(strings.Repeat("x", 100_000)), failing{w.arrival(after(url, host))})
		post(client, url, body, func() {})
	}},
	{"silence in an upload", nil, func(_ *faultWorld, client *http.Client, _, _, url string) {
		answered := make(chan struct{})
		body := io.MultiReader(strings.NewReader(strings.Repeat("x", 100_000)), waiting{answered})
		post(client, url, body, func() { close(answered) })
	}},
	{"abort of a wait", nil, func(w *faultWorld, client *http.Client, _, host, url string) {
		url = strings.Replace(url, "/read", "/wait", 1)
		ctx, cancel := context.WithCancel(w.t.Context())
		go func() {
			<-w.arrival(after(url, host))
			cancel()
		}()
		r, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
		if answer, err := client.Do(r); err == nil {
			answer.Body.Close()
		}
	}},
	{"abort of a download", nil, func(_ *faultWorld, client *http.Client, _, _, url string) {
		if answer, err := client.Get(strings.Replace(url, "/read", "/large", 1)); err == nil {
			_, _ = io.ReadFull(answer.Body, make([]byte, 1000))
			answer.Body.Close()
		}
	}},
	{"silence in a download", nil, func(w *faultWorld, client *http.Client, _, _, url string) {
		if answer, err := client.Get(strings.Replace(url, "/read", "/large", 1)); err == nil {
			w.t.Cleanup(func() { answer.Body.Close() }) // after the end of the request
		}
	}},
}

// silence is how long clients may be silent.
const silence = 3 * time.Second

// after returns what follows the text.
func after(s, text string) string {
	_, rest, _ := strings.Cut(s, text)
	return rest
}

type failing struct{ when chan struct{} }

func (f failing) Read([]byte) (int, error) {
	<-f.when
	return 0, errors.New("the client aborts")
}

type waiting struct{ until chan struct{} }

func (w waiting) Read([]byte) (int, error) {
	<-w.until
	return 0, io.EOF
}

// post sends a body. It calls answered when the head of the response is there, before it reads the rest.
func post(client *http.Client, url string, body io.Reader, answered func()) {
	answer, err := client.Post(url, "text/plain", body)
	if answered(); err == nil {
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
}

// raw sends a request with the rest of its head and a body on a connection of HTTP/1.1, ends it, and
// waits until the gateway does.
func (w *faultWorld) raw(protocol, host, url, method, rest string) {
	c := w.connect()
	defer c.Close()
	if protocol == "HTTP/1.1 TLS" {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: host})
	}
	target := after(url, host)
	_, _ = io.WriteString(c, method+" "+target+" HTTP/1.1\r\nHost: "+host+"\r\n"+rest)
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.Copy(io.Discard, c)
}

// shortBody sends a body of HTTP/2 that is shorter than its Content-Length (RFC 9113 8.1.1).
func (w *faultWorld) shortBody(host, url string) {
	c, err := tls.Dial("tcp", w.address, &tls.Config{InsecureSkipVerify: true, ServerName: host,
		NextProtos: []string{"h2"}})
	if err != nil {
		w.t.Error(err)
		return
	}
	defer c.Close()
	target := after(url, host)
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", host}, {":path", target},
		{"content-length", "100000"}} {
		_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // into a buffer
	}
	_, _ = io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings()
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	_ = f.WriteData(1, true, []byte("hello"))
	for {
		frame, err := f.ReadFrame()
		if err != nil || frame.Header().StreamID == 1 {
			return
		}
	}
}

// TestFaultsOfClients sends faulty requests over each protocol to servers that work, with each feature that
// acts on failures of servers. After each fault, an honest client gets its answers, no server is taken out,
// no circuit is open, and neither the log nor the metrics blame a server.
func TestFaultsOfClients(t *testing.T) {
	for _, scheme := range []string{"http", "https", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			w := newFaultWorld(t, scheme, silence)
			sent := 0
			for i, fault := range faultyClients {
				sent += w.make(fault, i)
				for _, line := range w.faultLines(sent) {
					at := fmt.Sprintf("fault=%d-", i)
					blames := line.DownstreamStatus >= 500 || line.RetryAttempts > 0
					if blames && strings.Contains(line.RequestPath, at) {
						t.Errorf("%s: the log has status %d and %d retries: %s", fault.name, line.DownstreamStatus,
							line.RetryAttempts, line.RequestPath)
					}
				}
				for _, host := range faultHosts {
					w.askHonestly(fault.name, host)
					w.askHonestly(fault.name, host) // each server
				}
			}
			w.checkBlame(t)
		})
	}
}

// askHonestly checks that an honest client gets its answer.
func (w *faultWorld) askHonestly(after, host string) {
	answer, err := w.client.Get("http://" + host + "/honest")
	if err != nil {
		w.t.Errorf("%s: after %s, an honest client gets: %v", host, after, err)
		return
	}
	defer answer.Body.Close()
	if answer.StatusCode != 200 {
		w.t.Errorf("%s: after %s, an honest client gets %d", host, after, answer.StatusCode)
	}
}

// make makes a fault over each protocol to each host, all at once, often enough to take out both servers. It returns
// the number of requests.
func (w *faultWorld) make(fault faultyClient, index int) (sent int) {
	var all sync.WaitGroup
	for _, protocol := range []string{"HTTP/1.1", "HTTP/1.1 TLS", "HTTP/2", "HTTP/3"} {
		if len(fault.over) > 0 && !slices.Contains(fault.over, protocol) {
			continue
		}
		for _, host := range faultHosts {
			for range 4 {
				client, closes := w.faultClient(protocol)
				w.t.Cleanup(closes)
				name := strings.ReplaceAll(protocol, " ", "-")
				url := fmt.Sprintf("https://%s/read?fault=%d-%s-%d", host, index, name, sent)
				if protocol == "HTTP/1.1" {
					url = strings.Replace(url, "https:", "http:", 1)
				}
				sent++
				all.Go(func() { fault.do(w, client, protocol, host, url) })
			}
		}
	}
	all.Wait()
	return sent
}

// checkBlame checks that the metrics blame no server.
func (w *faultWorld) checkBlame(t *testing.T) {
	_, metrics := w.get("http://x.test/metrics")
	for line := range strings.Lines(metrics) {
		up := strings.HasPrefix(line, "traefik_service_server_up")
		if up && !strings.HasSuffix(line, " 1\n") || strings.Contains(line, `code="5`) {
			t.Errorf("the metrics have %s", line)
		}
	}
	for _, server := range w.servers {
		if !strings.Contains(metrics, fmt.Sprintf("service=\"passive.test@file\",url=%q} 1", server)) {
			t.Errorf("the metrics do not show %s as up", server)
		}
	}
}

// TestFaultsOfServers breaks responses off: that is the server's fault, so the features act, and the
// client sees that the response is truncated.
func TestFaultsOfServers(t *testing.T) {
	for _, scheme := range []string{"http", "https", "h2c"} {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/1.1 TLS", "HTTP/2", "HTTP/3"} {
			t.Run(scheme+" "+protocol, func(t *testing.T) {
				w := newFaultWorld(t, scheme, silence)
				client, closes := w.faultClient(protocol)
				defer closes()
				for _, host := range faultHosts[:2] {
					url := "https://" + host
					if protocol == "HTTP/1.1" {
						url = "http://" + host
					}
					for range 6 {
						if status, whole := getWhole(client, url+"/break"); whole && status == 200 {
							t.Error("a truncated response looks complete")
						}
					}
					if status, _ := getWhole(client, url); status != 503 {
						t.Errorf("%s: the servers get requests still: status %d", host, status)
					}
				}
			})
		}
	}
}

// getWhole returns the status of the answer, and whether its body was complete.
func getWhole(client *http.Client, url string) (status int, whole bool) {
	answer, err := client.Get(url)
	if err != nil {
		return 0, false
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err == nil
}
