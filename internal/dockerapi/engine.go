// Package dockerapi asks a container engine for its containers and follows its events, with the API of Docker, which
// podman also implements. It does not know what an answer or an event means for a sandbox or a router.
//
// An engine may hang, answer without end, refuse a request, send more events than its clients handle, and start anew.
// So each answer has a time limit and a largest size, each container is asked for beside the events
// (Inspections), and events are read at once (Subscription).
package dockerapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"fairlead/internal/lock"
	"fairlead/internal/model/gateway"

	"golang.org/x/sys/unix"
)

// Engine is a container engine. The methods may be called concurrently.
type Engine struct {
	client *http.Client
	base   string
	// Limit is how long the engine may take for a whole answer.
	Limit time.Duration
}

// requestTimeout is how long the engine may take for an answer, or to begin one that does not end.
const requestTimeout = 10 * time.Second

// mostAnswer is the size of the largest answer, in bytes.
const mostAnswer = 64 << 20

var (
	// ErrSlow is the error if the engine has not answered in time.
	ErrSlow = errors.New("the engine has not answered in time")
	// ErrAnswering is the error of a request with a context of Answering. It is a mistake in the program, not in the
	// host.
	ErrAnswering = errors.New("an engine waits for this answer: no engine may be asked meanwhile")
)

// Unix returns the engine that listens on a unix socket.
func Unix(socket string) *Engine {
	return newEngine("http://engine", &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}})
}

func newEngine(base string, transport *http.Transport) *Engine {
	transport.ResponseHeaderTimeout = requestTimeout
	return &Engine{client: &http.Client{Transport: transport}, base: base, Limit: requestTimeout}
}

// New returns the engine at the endpoint: unix://PATH, tcp://HOST:PORT, http:// or https://.
func New(endpoint string, settings *gateway.ClientTLS) (*Engine, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "unix":
		return Unix(u.Path), nil
	case "tcp", "http", "https":
	default:
		return nil, fmt.Errorf("engine %s: want unix://PATH, tcp://HOST:PORT, http:// or https://", endpoint)
	}
	if settings == nil && u.Scheme != "https" {
		return newEngine("http://"+u.Host, &http.Transport{}), nil
	}
	c, err := clientTLS(settings)
	return newEngine("https://"+u.Host, &http.Transport{TLSClientConfig: c}), err
}

func clientTLS(s *gateway.ClientTLS) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s == nil {
		return c, nil
	}
	c.InsecureSkipVerify = s.InsecureSkipVerify
	if s.CA != "" {
		pem, err := os.ReadFile(s.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no PEM certificate", s.CA)
		}
	}
	if s.Cert != "" {
		pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Get decodes the answer to a request. The error wraps os.ErrNotExist if the engine does not have the object.
func (e *Engine) Get(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, e.Limit, ErrSlow)
	defer cancel()
	answer, err := e.request(ctx, e.client, http.MethodGet, path)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	err = json.NewDecoder(io.LimitReader(answer.Body, mostAnswer)).Decode(into)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("read its answer: %w", err)
	}
	return nil
}

// patient returns a client for one request whose answer may begin at any time.
func (e *Engine) patient() *http.Client {
	transport := e.client.Transport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout, transport.DisableKeepAlives = 0, true
	return &http.Client{Transport: transport}
}

// Post sends a request that changes something. Only the context limits how long the engine takes.
func (e *Engine) Post(ctx context.Context, path string) error {
	answer, err := e.request(ctx, e.patient(), http.MethodPost, path)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// request returns the answer, whose body must be closed. The path has no version, so the engine takes the latest one
// that it knows.
func (e *Engine) request(ctx context.Context, client *http.Client, method, path string) (*http.Response, error) {
	if isAnswering(ctx) {
		return nil, ErrAnswering
	}
	lock.Outside("a container engine")
	r, err := http.NewRequestWithContext(ctx, method, e.base+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(r)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	case answer.StatusCode/100 == 2:
		return answer, nil
	}
	defer answer.Body.Close()
	return nil, refusal(answer)
}

// Refusal is the error in an engine's answer. It is os.ErrNotExist if the engine does not have the object.
type Refusal struct {
	text string
	code int
}

func (r *Refusal) Error() string { return r.text }

// Is reports whether the refusal is the target.
func (r *Refusal) Is(target error) bool {
	return target == os.ErrNotExist && r.code == http.StatusNotFound
}

func refusal(answer *http.Response) error {
	var body struct{ Message string }
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err != nil {
		return err
	}
	if json.Unmarshal(text, &body) != nil || body.Message == "" {
		body.Message = fmt.Sprintf("the engine answers %s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	return &Refusal{body.Message, answer.StatusCode}
}

// NotRunning reports whether the error means that the engine's socket does not exist or that no process listens on it.
func NotRunning(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)
}

type answering struct{}

// Answering returns a context for the answer to a request of a container engine. With
// this context, and those derived from it, this package sends no request to any engine:
// each one fails at once. The engine may hold its locks until it has the answer, and
// when it starts, it answers no request before its containers are restored. A question
// would then last until its time limit, and the engine would wait as long.
func Answering(ctx context.Context) context.Context { return context.WithValue(ctx, answering{}, true) }

// isAnswering reports whether the context, or one that it is derived from, is of Answering.
func isAnswering(ctx context.Context) bool { return ctx.Value(answering{}) != nil }
