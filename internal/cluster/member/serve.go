package member

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
	"fairlead/internal/escape"

	"golang.org/x/sys/unix"
)

// The paths of the API for other nodes.
const (
	pathJoin = "/v1/join"
	pathPing = "/v1/ping"
	pathAsk  = "/v1/ask/"
)

// The limits of the API. A host without a certificate can only join.
const (
	maxBody      = 64 << 10
	maxHeader    = 8 << 10
	headerLimit  = 5 * time.Second
	requestLimit = 15 * time.Second
	idleLimit    = time.Minute
	// listenAgain is how long the node waits before it listens again at an address that
	// another process uses.
	listenAgain = 5 * time.Second
)

// refusal is the answer to a request that is refused.
type refusal struct {
	Code    api.Code `json:"code"`
	Message string   `json:"message"`
}

// Pong is what a node says about itself when it is asked. That costs no write, unlike record.Alive.
type Pong struct {
	Node    string `json:"node"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Format  int    `json:"format"`
	// Applied and Needed are the node's progress.
	Applied int64 `json:"applied"`
	Needed  int64 `json:"needed"`
	// Frozen is why the node ignores the store; empty if it does not.
	Frozen string `json:"frozen,omitempty"`
}

// Ask answers a question of another node, whose id is from. question and the answer are JSON.
type Ask func(ctx context.Context, from string, question json.RawMessage) (any, error)

// Answer registers what answers questions of a kind, e.g. "vip-promise". It is called before Run.
func (m *Member) Answer(kind string, ask Ask) { m.asks[kind] = ask }

// serve serves the API at each of the node's addresses until ctx ends, also after they have changed.
func (m *Member) serve(ctx context.Context) {
	bound := newBounds(func(a netip.Addr) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.addresses[a]
	}, greetedBy(m))
	for ctx.Err() == nil {
		current, cancel := context.WithCancel(ctx)
		f := m.self()
		var all sync.WaitGroup
		for _, a := range f.Addresses {
			all.Go(func() { m.keepServing(current, netip.AddrPortFrom(a, f.Port), bound) })
		}
		select {
		case <-m.moved:
		case <-ctx.Done():
		}
		cancel()
		all.Wait()
	}
}

// greetedBy returns the function that returns the id of the node that greets this one with a server name, or an empty
// string.
func greetedBy(m *Member) func(name string) string {
	return func(name string) string {
		f := m.self()
		from, _ := trust.Greeted(f.ClusterKey, f.Node, name, m.cfg.Now())
		return from
	}
}

// keepServing serves the API at one address until ctx ends.
func (m *Member) keepServing(ctx context.Context, at netip.AddrPort, bound *bounds) {
	for reported := false; ctx.Err() == nil; {
		err := m.serveAt(ctx, at, bound)
		if err != nil && !reported {
			m.cfg.Log.Error("serve the API for other nodes", "address", at, "error", err)
			reported = true
		}
		kv.Wait(ctx, listenAgain)
	}
}

// Listen listens at an address that need not exist yet (IP_FREEBIND). It accepts connections when their first data has
// arrived (TCP_DEFER_ACCEPT), or after headerLimit.
func Listen(ctx context.Context, at netip.AddrPort) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		failed := c.Control(func(fd uintptr) {
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1),
				unix.SetsockoptInt(int(fd), unix.SOL_TCP, unix.TCP_DEFER_ACCEPT, int(headerLimit/time.Second)))
		})
		return errors.Join(failed, err)
	}}
	return config.Listen(ctx, "tcp", at.String())
}

// serveAt serves the API at one address until ctx ends.
func (m *Member) serveAt(ctx context.Context, at netip.AddrPort, bound *bounds) error {
	l, err := m.cfg.Listen(ctx, at)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: m.handler(), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerLimit,
		ReadTimeout: requestLimit, WriteTimeout: requestLimit, IdleTimeout: idleLimit, ConnState: atRequest,
		ErrorLog: log.New(io.Discard, "", 0)} // any host can cause these errors
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		server.Close()
	}()
	err = server.Serve(tls.NewListener(&boundListener{l, bound},
		trust.Server(m.current, m.accepts, m.cfg.Now)))
	if ctx.Err() != nil {
		<-ended
		return nil
	}
	return errors.Join(err, l.Close())
}

// handler answers the requests of other nodes.
func (m *Member) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathJoin, func(w http.ResponseWriter, r *http.Request) {
		var request joinRequest
		respond(w, r, &request, func() (any, error) { return admission{m}.admit(r.Context(), request, r.TLS) })
	})
	mux.HandleFunc("POST "+pathPing, m.members(func(w http.ResponseWriter, r *http.Request, _ string) {
		respond(w, r, &struct{}{}, func() (any, error) { return m.pong(), nil })
	}))
	mux.HandleFunc("POST "+pathAsk+"{kind}", m.members(func(w http.ResponseWriter, r *http.Request, from string) {
		var question json.RawMessage
		respond(w, r, &question, func() (any, error) {
			ask := m.asks[r.PathValue("kind")]
			if ask == nil {
				return nil, api.Faultf(api.NotFound, "this node does not know the question: compare the versions")
			}
			if err := (standing{m}).permitted(); err != nil { // the promises of a copy do not bind the node
				return nil, err
			}
			return ask(r.Context(), from, question)
		})
	}))
	return mux
}

// members refuses peers that are not in the newest snapshot. The handshake has checked that too, but
// a connection can be older than the removal of its node.
func (m *Member) members(fn func(http.ResponseWriter, *http.Request, string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		peer, ok := trust.PeerOf(r.TLS)
		if !ok || !m.accepts(peer) {
			refuse(w, api.Faultf(api.Conflict, "%w", trust.ErrNotMember))
			return
		}
		fn(w, r, peer.Node)
	}
}

// respond decodes the request, and answers with what fn returns.
func respond(w http.ResponseWriter, r *http.Request, request any, fn func() (any, error)) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(text, request)
	}
	if err != nil {
		refuse(w, api.Faultf(api.Invalid, "read request: %w", err))
		return
	}
	answer, err := fn()
	if err != nil {
		refuse(w, err)
		return
	}
	send(w, http.StatusOK, answer)
}

func refuse(w http.ResponseWriter, err error) {
	send(w, http.StatusConflict, refusal{api.CodeOf(err), escape.Error(err)})
}

func send(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the peer may have closed the connection
}

// Peer asks another node a question, and decodes its answer. Returns an error if the node is not in
// the newest snapshot.
func (m *Member) Peer(ctx context.Context, id, kind string, question, into any) error {
	return m.request(ctx, id, pathAsk+kind, question, into)
}

// pong returns what this node says about itself.
func (m *Member) pong() Pong {
	m.mu.Lock()
	f, p := m.file, m.progress
	m.mu.Unlock()
	return Pong{Node: f.Node, Name: f.Name, Version: m.cfg.Version, Format: record.Format, Applied: p.applied,
		Needed: p.needed, Frozen: m.Frozen()}
}

// Ping asks another node who it is, and how far.
func (m *Member) Ping(ctx context.Context, id string) (p Pong, err error) {
	err = m.request(ctx, id, pathPing, struct{}{}, &p)
	return p, err
}

func (m *Member) request(ctx context.Context, id, path string, question, into any) error {
	_, snapshot, err := m.inCluster()
	if err != nil {
		return err
	}
	n, known, err := record.Get[record.Node](snapshot, record.Key(record.Nodes, id))
	if !known || err != nil {
		return fmt.Errorf("ask node %s: %w", id, trust.ErrNotMember)
	}
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("ask node %s: %w", n.Name, err)
	}
	f := m.self()
	config := trust.Client(m.current, id, m.accepts, m.cfg.Now)
	config.ServerName = trust.Greeting(f.ClusterKey, f.Node, id, m.cfg.Now())
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, DialContext: m.cfg.Dial}
	err = fmt.Errorf("ask node %s: it has no address", n.Name)
	for i, a := range n.Addresses {
		err = callFor(ctx, len(n.Addresses)-i, newClient(transport), netip.AddrPortFrom(a, n.Port), path, body, into)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("ask node %s: %w", n.Name, err)
	}
	return err
}

// callFor calls a node at the first of its remaining addresses, for its part of the time that is left: the node's host
// may not have this address, and then nothing answers.
func callFor(ctx context.Context, remaining int, client *http.Client, at netip.AddrPort, path string, body []byte,
	into any) error {
	if end, limited := ctx.Deadline(); limited {
		limit, cancel := context.WithTimeout(ctx, time.Until(end)/time.Duration(remaining))
		defer cancel()
		ctx = limit
	}
	return call(ctx, client, at, path, body, into)
}
