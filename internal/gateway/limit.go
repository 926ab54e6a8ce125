package gateway

import (
	"cmp"
	"container/list"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"fairlead/internal/gateway/forwarded"
	"fairlead/internal/model/gateway"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// perClient is how many connections the clients at one address may have by default:
// enough for the many users behind one address, and for load tests. They have at most half
// of those of the entry point, so that one client cannot take all.
const perClient = 16384

// limits counts the connections of an entry point, so that one client cannot take all
// descriptors and the memory. Traefik has no such limits.
type limits struct {
	log             *slog.Logger
	most, perClient int
	trusts          func(netip.Addr) bool
	refused         *prometheus.CounterVec
	entry           string

	mu      sync.Mutex
	all     int
	clients map[netip.Addr]int
	// silent has the *admission of each connection without a whole head of a request, the oldest first.
	silent list.List
	// logged is when a refusal was logged last.
	logged time.Time
}

func (g *Gateway) newLimits(value gateway.EntryPoint, f forwarded.Headers) *limits {
	most := cmp.Or(value.MaxConnections, defaultConnections(len(g.static.EntryPoints)))
	return &limits{log: g.log, entry: value.Name, trusts: f.Trusts, refused: g.observer.metrics.Refused, most: most,
		perClient: cmp.Or(value.MaxConnectionsPerClient, min(perClient, (most+1)/2)),
		clients:   map[netip.Addr]int{}}
}

// defaultConnections divides half of the descriptors between the entry points. The other
// half is for connections to servers.
func defaultConnections(entries int) int {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
		return 512
	}
	return int(min(r.Cur, 1<<24)) / 2 / max(entries, 1)
}

// peer is a client's connection, of TCP or QUIC.
type peer interface{ RemoteAddr() net.Addr }

// admission is a connection that counts. Its methods may be called concurrently, and more than once.
type admission struct {
	limits *limits
	// client is the address under which the connection counts. One of QUIC can move to another.
	client netip.Addr
	// end closes the connection.
	end func()
	// silent is nil when the client has sent a whole head of a request.
	silent *list.Element
	left   bool
}

// enter counts a connection, and returns nil if there are too many. If the entry point is full, the
// connection replaces the oldest one whose client has sent no whole head of a request: its end is called.
func (l *limits) enter(c peer, end func()) *admission {
	a := &admission{limits: l, client: clientOf(c), end: end}
	l.mu.Lock()
	evicted, reason := l.place(a)
	if reason != "" {
		l.refuse(a.client, reason)
	}
	l.mu.Unlock()
	if evicted != nil {
		evicted.end()
	}
	if reason != "" && evicted == nil {
		return nil
	}
	return a
}

// place counts the connection if there is a place or another one gives its own. It returns that other one,
// and the limit that it has reached. The caller holds the lock.
func (l *limits) place(a *admission) (evicted *admission, reason string) {
	oldest := l.silent.Front()
	switch {
	case l.clients[a.client] >= l.perClient && !l.trusts(a.client):
		return nil, "maxConnectionsPerClient"
	case l.all >= l.most && oldest == nil:
		return nil, "maxConnections"
	case l.all >= l.most:
		evicted, reason = oldest.Value.(*admission), "silent"
		l.free(evicted)
	}
	l.all++
	l.clients[a.client]++
	a.silent = l.silent.PushBack(a)
	return evicted, reason
}

// refuse counts and logs what a limit has refused. The caller holds the lock.
func (l *limits) refuse(client netip.Addr, reason string) {
	l.refused.WithLabelValues(l.entry, reason).Inc()
	if time.Since(l.logged) > time.Minute {
		l.logged = time.Now()
		l.log.Warn("refuse connections: there are too many", "entry point", l.entry, "limit", reason,
			"connections", l.all, "client", client, "of this client", l.clients[client])
	}
}

// heard says that the client has sent a whole head of a request, so no other connection replaces this one.
func (a *admission) heard() {
	a.limits.mu.Lock()
	defer a.limits.mu.Unlock()
	a.limits.unlist(a)
}

// leave says that the connection has ended.
func (a *admission) leave() {
	a.limits.mu.Lock()
	defer a.limits.mu.Unlock()
	a.limits.free(a)
}

// free gives the place of a connection back. The caller holds the lock.
func (l *limits) free(a *admission) {
	if a.left {
		return
	}
	a.left = true
	l.unlist(a)
	l.all--
	if l.clients[a.client]--; l.clients[a.client] == 0 {
		delete(l.clients, a.client)
	}
}

// unlist says that the connection cannot be replaced. The caller holds the lock.
func (l *limits) unlist(a *admission) {
	if a.silent != nil {
		l.silent.Remove(a.silent)
		a.silent = nil
	}
}

// clientOf returns the address of a client. Those of one /64 of IPv6 are one client,
// which commonly has all addresses of it.
func clientOf(c peer) netip.Addr {
	remote, ok := c.RemoteAddr().(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Addr{}
	}
	at := remote.AddrPort().Addr().Unmap().WithZone("")
	if at.Is4() {
		return at
	}
	p, err := at.Prefix(64)
	if err != nil {
		return at
	}
	return p.Addr()
}
