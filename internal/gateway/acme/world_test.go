package acme_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/gateway"
	"fairlead/internal/gateway/acme"
	"fairlead/internal/gateway/acme/acmetest"
	"fairlead/internal/gateway/entries"
	"fairlead/internal/lab/certificate"
	model "fairlead/internal/model/gateway"
)

// patience is how long a change may take, also on a busy machine.
const patience = 2 * time.Minute

// world is a gateway with entry points web and websecure, and an authority that validates
// names there.
type world struct {
	*testing.T
	gateway   *gateway.Gateway
	authority *acmetest.Authority
	web       string
	secure    string
	static    model.Static
	// changed has a value after each change.
	changed chan struct{}
	mu      sync.Mutex
	config  model.Config
	// last is what the gateway uses.
	last model.Config
}

func newWorld(t *testing.T, options acmetest.Options, resolver model.Resolver) *world {
	t.Helper()
	w := &world{T: t, changed: make(chan struct{}, 1)}
	w.static = model.Static{Default: []string{"web", "websecure"}, EntryPoints: []model.EntryPoint{
		{Name: "web", Address: "127.0.0.1:0", Redirect: &model.Redirection{To: "websecure"}},
		{Name: "websecure", Address: "127.0.0.1:0"}}}
	var err error
	if w.gateway, err = gateway.New(w.static, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	listeners, err := entries.Listen(w.static.EntryPoints)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.gateway.Serve(ctx, listeners) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	w.web, w.secure = listeners["web"].TCP.Addr().String(), listeners["websecure"].TCP.Addr().String()
	options.HTTPPort, options.TLSPort = portOf(w.web), portOf(w.secure)
	if options.DNS == "" {
		at, stop, err := acmetest.Names("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		options.DNS = at
	}
	if w.authority, err = acmetest.Start(options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.authority.Close)
	resolver.CAServer, resolver.CACertificates = w.authority.URL, []string{w.authority.Roots}
	if resolver.Storage == "" {
		resolver.Storage = filepath.Join(t.TempDir(), "acme.json")
	}
	w.static.Resolvers = map[string]*model.Resolver{"le": &resolver}
	return w
}

func portOf(address string) int {
	_, port, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	return n
}

// start runs a manager until stop is called, or the test ends.
func (w *world) start(backoff ...time.Duration) (stop func()) {
	w.Helper()
	var m *acme.Manager
	apply := func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		config := w.config
		m.Complete(&config)
		w.gateway.Apply(&config, nil)
		w.last = config
		select {
		case w.changed <- struct{}{}:
		default:
		}
		return nil
	}
	m = acme.New(acme.Options{Static: w.static, Log: slog.New(slog.NewTextHandler(w.Output(), nil)), Changed: apply,
		Backoff: backoff})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	_ = apply(ctx) // it cannot fail
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	w.Cleanup(stop)
	return stop
}

// secureRouter returns a router with TLS whose certificate is from the resolver.
func secureRouter(rule string, domains ...model.Domain) *model.Router {
	return &model.Router{Rule: rule, Service: "noop@internal", EntryPoints: []string{"websecure"},
		TLS: &model.RouterTLS{CertResolver: "le", Domains: domains}}
}

func (w *world) routers(all map[string]*model.Router) { w.config.HTTP.Routers = all }

// states returns the states of the certificates by their names.
func (w *world) states() map[string]model.CertificateState {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string]model.CertificateState{}
	for _, c := range w.last.ACME.Certificates {
		all[strings.Join(slices.Sorted(slices.Values(c.Names)), ",")] = c
	}
	return all
}

// until waits for a state of the certificate that the function accepts.
func (w *world) until(names string, ok func(model.CertificateState) bool) model.CertificateState {
	w.Helper()
	limit := time.After(patience)
	for {
		if s := w.states()[names]; ok(s) {
			return s
		}
		select {
		case <-w.changed:
		case <-limit:
			w.Fatalf("certificate for %s: %+v", names, w.states())
		}
	}
}

func valid(s model.CertificateState) bool { return s.State == model.CertificateValid }

func failed(s model.CertificateState) bool { return s.State == model.CertificateFailed }

// served returns the certificate that a client gets for the name.
func (w *world) served(name string) *x509.Certificate {
	w.Helper()
	c, err := tls.Dial("tcp", w.secure, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err != nil {
		w.Fatalf("handshake for %s: %v", name, err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0]
}

// certificateFor returns a certificate for the name, as PEM texts.
func certificateFor(t *testing.T, name string) model.Certificate {
	t.Helper()
	pair, err := certificate.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return model.Certificate{CertFile: string(pair.Chain), KeyFile: string(pair.Key)}
}
