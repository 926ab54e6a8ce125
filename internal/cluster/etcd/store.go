// Package etcd is the store of a cluster in etcd: transactions, lists and watches below the
// cluster's prefix. It does not keep a snapshot, and never compacts.
//
// Theory of operation. There is one connection per server, and one server is in use. gRPC's own
// balancer would send requests to a server that is cut off until its keepalive fails, after ten
// seconds. Here, a request that is not answered in time makes the next server the one in use. A
// request counts as sent when gRPC reports its headers: an error before that is ErrUnavailable, and
// one after that ErrUnknown, unless etcd says that it has refused the request.
package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
)

// Config says how to reach a cluster's store.
type Config struct {
	Access api.EtcdAccess
	// Cluster is the name of the cluster.
	Cluster string
	// Dial connects to a server; nil means from this host.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Silence is how long a watch waits for any answer of a server before another one is in use; 0 means
	// 5 s. The limits of reads are in proportion to it.
	Silence time.Duration
}

// defaultSilence is Config.Silence if it is 0.
const defaultSilence = 5 * time.Second

// Store is a connection to a cluster's store. Its methods may be called concurrently.
type Store struct {
	access  api.EtcdAccess
	prefix  string
	silence time.Duration
	servers []server
	// inUse counts the changes of the server in use.
	inUse atomic.Int64
	// known is the id of the etcd that may answer; 0 means any.
	known atomic.Uint64
	// life ends with Close.
	life  context.Context
	end   context.CancelFunc
	tasks sync.WaitGroup

	// mu protects the fields below.
	mu     sync.Mutex
	token  string
	noAuth bool
	lease  clientv3.LeaseID
}

// server is one of the servers of etcd.
type server struct {
	url    string
	client *clientv3.Client
	reach  *reach
	// conn is the newest connection to it.
	conn *atomic.Pointer[net.Conn]
}

// Open returns a store. It does not connect: the first request does.
func Open(cfg Config) (*Store, error) {
	secure, err := tlsConfig(cfg.Access)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	if cfg.Cluster == "" || strings.Contains(cfg.Cluster, "/") {
		return nil, fmt.Errorf("connect to etcd: %q is no name of a cluster", cfg.Cluster)
	}
	s := &Store{access: cfg.Access, prefix: "/fairlead/v1/" + cfg.Cluster + "/",
		silence: cmp.Or(cfg.Silence, defaultSilence)}
	s.life, s.end = context.WithCancel(context.Background())
	for _, endpoint := range cfg.Access.Endpoints {
		at, err := newServer(s.life, endpoint, secure, cfg)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to etcd at %s: %w", endpoint, err), s.Close())
		}
		s.servers = append(s.servers, at)
	}
	if len(s.servers) == 0 {
		return nil, errors.Join(errors.New("connect to etcd: there is no URL of a server"), s.Close())
	}
	s.tasks.Go(s.keepLease)
	return s, nil
}

// newServer returns a server with its client. It makes each request once: the Store repeats requests.
func newServer(life context.Context, endpoint string, secure *tls.Config, cfg Config) (server, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Port() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return server{}, errors.New("want a URL with a port, for example https://192.0.2.7:2379")
	}
	at := server{url: endpoint, reach: newReach(u, cfg.Access), conn: &atomic.Pointer[net.Conn]{}}
	transport := insecure.NewCredentials()
	if u.Scheme == "https" {
		transport = credentials.NewTLS(secure)
	}
	options := []grpc.DialOption{grpc.WithStatsHandler(sentHandler{}),
		grpc.WithContextDialer(keepingNewest(at.reach.dialer(cfg.Dial), at.conn)),
		grpc.WithTransportCredentials(handshakes{transport, at.reach}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second, Backoff: backoff.Config{
			BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}})}
	at.client, err = clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Context: life, Logger: zap.NewNop(),
		MaxUnaryRetries: 1, DialOptions: options})
	return at, err
}

// keepingNewest returns a function that connects like dial, and keeps the newest connection.
func keepingNewest(dial func(context.Context, string) (net.Conn, error),
	newest *atomic.Pointer[net.Conn]) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		if err == nil {
			newest.Store(&conn)
		}
		return conn, err
	}
}

// Drop closes connections from these addresses of the host, which it does not have any more. Otherwise requests would
// wait until the kernel gives the connections up.
func (s *Store) Drop(local []netip.Addr) {
	for _, at := range s.servers {
		conn := at.conn.Load()
		if conn == nil {
			continue
		}
		from, err := netip.ParseAddrPort((*conn).LocalAddr().String())
		if err == nil && slices.Contains(local, from.Addr().Unmap()) {
			_ = (*conn).Close() // it may be closed already
		}
	}
}

// tlsConfig returns the TLS configuration for https.
func tlsConfig(a api.EtcdAccess) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.CA != "" {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM([]byte(a.CA)) {
			return nil, errors.New("read the certificate of etcd's CA: it is not PEM")
		}
	}
	if a.Certificate != "" || a.Key != "" {
		pair, err := tls.X509KeyPair([]byte(a.Certificate), []byte(a.Key))
		if err != nil {
			return nil, fmt.Errorf("read the client certificate for etcd: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// Close ends all requests and connections. Leased keys stay until their lease ends, so that a
// restart of the process does not delete them.
func (s *Store) Close() error {
	s.end()
	s.tasks.Wait()
	var errs []error
	for _, m := range s.servers {
		// The client's context has ended, which is the error of its Close.
		if err := m.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Expect makes all requests but List fail with kv.ErrOtherEtcd if the etcd that answers has another
// id. 0 means that each may answer.
func (s *Store) Expect(id uint64) { s.known.Store(id) }

// check returns an error if the answer is from another etcd than the known one.
func (s *Store) check(header *etcdserverpb.ResponseHeader) error {
	if known := s.known.Load(); known != 0 && header.GetClusterId() != known {
		return fmt.Errorf("%w: its cluster id is %x instead of %x", kv.ErrOtherEtcd, header.GetClusterId(), known)
	}
	return nil
}

// Next makes another server the one in use.
func (s *Store) Next() { s.inUse.Add(1) }

// current returns the server in use.
func (s *Store) current() (server, int64) {
	n := s.inUse.Load()
	return s.servers[int(n)%len(s.servers)], n
}

// leave makes another server the one in use, unless that has happened since.
func (s *Store) leave(n int64) { s.inUse.CompareAndSwap(n, n+1) }
