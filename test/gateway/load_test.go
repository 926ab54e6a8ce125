package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// load sends requests at fixed times, whether or not earlier ones are answered (an open loop).
type load struct {
	client *http.Client
	url    string
	// again lets the client send a request again that HTTP/2 says was not processed.
	again bool
	stop  context.CancelFunc
	ended chan struct{}

	mu  sync.Mutex
	now window
}

// window has what became of the requests of a period.
type window struct {
	// took has the times from the intended start to the end of the answer.
	took   []time.Duration
	failed map[string]int
}

// connections is how many connections a client has at most. If the machine is too busy to answer, its
// requests wait, and do not exceed the gateway's limits.
const connections = 256

// start begins to send requests, until end or the end of the test.
func (l *load) start(t *testing.T, perSecond int) *load {
	transport := l.client.Transport.(*http.Transport)
	transport.MaxConnsPerHost, transport.MaxIdleConnsPerHost = connections, connections
	l.client.Timeout = time.Minute
	ctx, stop := context.WithCancel(context.Background())
	l.stop, l.ended, l.now.failed = stop, make(chan struct{}), map[string]int{}
	go l.run(ctx, time.Second/time.Duration(perSecond))
	t.Cleanup(func() { l.end() })
	return l
}

// end waits for the answers to the last requests, and returns the last window.
func (l *load) end() window {
	l.stop()
	<-l.ended
	return l.next()
}

func (l *load) run(ctx context.Context, interval time.Duration) {
	defer close(l.ended)
	var pending sync.WaitGroup
	defer pending.Wait()
	began := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		due := began.Add(time.Duration(n) * interval)
		time.Sleep(time.Until(due))
		pending.Go(func() {
			answer := l.send(n%3 == 0)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.now.took = append(l.now.took, time.Since(due))
			if answer != "" {
				l.now.failed[answer]++
			}
		})
	}
}

// next ends the window, and begins another.
func (l *load) next() window {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.now
	l.now = window{failed: map[string]int{}}
	slices.Sort(w.took)
	return w
}

// quantile returns a quantile of the times.
func (w window) quantile(share float64) time.Duration {
	if len(w.took) == 0 {
		return 0
	}
	return w.took[int(share*float64(len(w.took)-1))]
}

func (w window) String() string {
	failed := 0
	var reasons []string
	for reason, n := range w.failed {
		failed += n
		reasons = append(reasons, fmt.Sprintf("\n\t%d: %s", n, reason))
	}
	slices.Sort(reasons)
	return fmt.Sprintf("%d requests, %d failed, p50 %v, p99 %v, p99.9 %v%s", len(w.took), failed,
		w.quantile(0.5).Round(time.Microsecond), w.quantile(0.99).Round(time.Microsecond),
		w.quantile(0.999).Round(time.Microsecond), strings.Join(reasons, ""))
}

// wantAll fails the test and returns false if a request has failed.
func wantAll(t *testing.T, when string, w window) bool {
	t.Helper()
	t.Logf("%s: %s", when, w)
	if len(w.failed) > 0 {
		t.Errorf("%s: requests failed", when)
	}
	return len(w.failed) == 0
}

// send sends a GET request, or a POST request with a body, and returns why it failed. The client
// cannot read the body again, so it sends the request once only.
func (l *load) send(post bool) (reason string) {
	method, body := http.MethodGet, ""
	if post {
		method, body = http.MethodPost, "0123456789"
	}
	var content io.Reader = strings.NewReader(body)
	if !l.again {
		content = io.NopCloser(content)
	}
	r, err := http.NewRequest(method, l.url, content)
	if err != nil {
		return err.Error()
	}
	r.ContentLength = int64(len(body))
	answer, err := l.client.Do(r)
	if err != nil {
		return method + " " + reasonOf(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return method + " " + reasonOf(err)
	case answer.StatusCode != http.StatusOK:
		return method + " " + answer.Status
	case !strings.HasSuffix(strings.TrimSpace(string(text)), body):
		return "the body is lost"
	}
	return ""
}

// reasonOf returns the error without addresses, so that equal failures are counted together.
func reasonOf(err error) string {
	var e *net.OpError
	if errors.As(err, &e) {
		return e.Op + ": " + e.Err.Error()
	}
	return err.Error()
}
