package gateway_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	model "fairlead/internal/model/gateway"
)

// slowConnections is how many connections slowhttptest opens, manyConnections how many of them
// the gateway must have: the tool does not open one again that has failed.
const slowConnections, manyConnections = 300, 200

// slowClients are the modes of slowhttptest: a head or a body that does not end, a response
// that is read slowly, and ranges that overlap. The last ends by itself, because the
// connections are not held.
var slowClients = []struct {
	name string
	args []string
	held bool
}{
	{"slow head", []string{"-H", "-i", "1", "-x", "10"}, true},
	{"slow body", []string{"-B", "-i", "1", "-x", "10", "-s", "8192", "-t", "POST"}, true},
	{"slow reader", []string{"-X", "-w", "10", "-y", "20", "-n", "5", "-z", "5", "-k", "3"}, true},
	{"ranges", []string{"-R", "-a", "5", "-b", "3000"}, false},
}

// TestSlowHTTPTest runs slowhttptest against an entry point with default limits. While it holds
// its connections, another client is served; after its end, the gateway has no connection to
// it nor to the server, and no limit counts one.
func TestSlowHTTPTest(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		for _, slow := range slowClients {
			t.Run(scheme+" "+slow.name, func(t *testing.T) {
				w := newSlow(t, model.EntryPoint{})
				end := w.attack(scheme, slow.args, slow.held)
				if slow.held {
					w.await("the slow connections", func() bool { return w.held() > manyConnections+50 })
				}
				for range 3 {
					if status, _ := w.get(scheme + "://127.0.0.1/small"); status != http.StatusOK {
						t.Errorf("another client gets status %d", status)
					}
					w.client.CloseIdleConnections()
				}
				if n := w.held(); slow.held && n <= manyConnections {
					t.Errorf("only %d connections are held: the test proves nothing", n)
				}
				end()
				w.await("free slots", func() bool { return w.held() == 1 && w.inServer.Load() == 0 })
			})
		}
	}
}

// TestSlowHTTPTestTakesHalf runs slowhttptest against an entry point that accepts fewer
// connections than slowhttptest opens. A client with another address is served.
func TestSlowHTTPTestTakesHalf(t *testing.T) {
	w := newSlow(t, model.EntryPoint{MaxConnections: slowConnections / 2})
	w.transport().DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		other := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		return other.DialContext(ctx, network, w.address)
	}
	end := w.attack("http", slowClients[0].args, true)
	w.await("refused connections", func() bool {
		_, metrics := w.get("http://x.test/metrics")
		return strings.Contains(metrics, `fairlead_gateway_refused_connections_total{entrypoint="web",`+
			`limit="maxConnectionsPerClient"}`)
	})
	for range 3 {
		w.client.CloseIdleConnections()
		if status, _ := w.get("http://127.0.0.1/small"); status != http.StatusOK {
			t.Errorf("another client gets status %d", status)
		}
	}
	end()
}

// slowWorld is a gateway that slowhttptest uses.
type slowWorld struct {
	*world
	// inServer counts the requests that the server has and has not answered.
	inServer atomic.Int64
}

func newSlow(t *testing.T, at model.EntryPoint) *slowWorld {
	if _, err := exec.LookPath("slowhttptest"); err != nil {
		t.Fatalf("%v: run test/install-debian", err)
	}
	at.Name, at.Address = "web", "127.0.0.1:0"
	w := &slowWorld{world: newWorld(t, model.Static{EntryPoints: []model.EntryPoint{at},
		Metrics: &model.Metrics{EntryPoint: "web"}})}
	// No socket buffer holds the large body.
	large := bytes.Repeat([]byte("0123456789abcdef"), 512<<10)
	service := server(t, func(rw http.ResponseWriter, r *http.Request) {
		w.inServer.Add(1)
		defer w.inServer.Add(-1)
		switch {
		case r.URL.Path == "/small":
			_, _ = rw.Write([]byte("small"))
		case r.Method == http.MethodPost:
			_ = r.ParseForm() // fails when slowhttptest ends
		default:
			_, _ = rw.Write(large)
		}
	})
	rule := "Host(`127.0.0.1`)"
	w.apply(map[string]*model.Router{"r@file": {Rule: rule, Service: "s@file"},
		"tls@file": {Rule: rule, Service: "s@file", TLS: &model.RouterTLS{}}},
		map[string]*model.Service{"s@file": service})
	w.transport().TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	return w
}

func (w *slowWorld) transport() *http.Transport { return w.client.Transport.(*http.Transport) }

// attack starts slowhttptest. The function that it returns kills it if it holds connections,
// and waits for its end.
func (w *slowWorld) attack(scheme string, args []string, held bool) (end func()) {
	w.t.Helper()
	n := strconv.Itoa(slowConnections)
	cmd := exec.Command("slowhttptest", append(args, "-c", n, "-r", n, "-l", "600", "-p", "60",
		"-u", fmt.Sprintf("%s://%s/", scheme, w.address))...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		if held {
			_ = cmd.Process.Kill()
		}
		_ = cmd.Wait() // its exit status says only that it was killed
		w.t.Logf("%s", out.Bytes())
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		end()
	})
	return end
}

var openConnections = regexp.MustCompile(`traefik_open_connections{entrypoint="web",protocol="TCP"} (\d+)`)

// held returns the number of open connections, with that of the question.
func (w *slowWorld) held() int {
	w.t.Helper()
	w.client.CloseIdleConnections()
	_, metrics := w.get("http://x.test/metrics")
	found := openConnections.FindStringSubmatch(metrics)
	if found == nil {
		w.t.Fatalf("the metrics lack the open connections:\n%s", metrics)
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

func (w *slowWorld) await(name string, reached func() bool) {
	w.t.Helper()
	eventually(w.t, name, func() error {
		if reached() {
			return nil
		}
		return fmt.Errorf("%d connections are open, the server has %d requests", w.held(), w.inServer.Load())
	})
}
