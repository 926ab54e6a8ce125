// Package admission limits what a gateway has at once: the connections of an entry point, of all clients and of
// each, and the copies of requests for mirrors. It does not accept connections or send copies.
package admission

import (
	"cmp"
	"container/list"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"fairlead/internal/model/gateway"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// perClient is how many connections the clients at one address may have by default:
// enough for the many users behind one address, and for load tests. They have at most half
// of those of the entry point, so that one client cannot take all.
const perClient = 16384

// Limits counts the connections of an entry point, so that one client cannot take all
// descriptors and the memory. Traefik has no such limits.
type Limits struct {
	log             *slog.Logger
	most, perClient int
	trusts          func(netip.Addr) bool
	refused         *prometheus.CounterVec
	entry           string

	mu      sync.Mutex
	all     int
	clients map[netip.Addr]int
	// silent has the *Place of each connection without a whole head of a request, the oldest first.
	silent list.List
	// logged is when a refusal was logged last.
	logged time.Time
}

// Settings are those of an entry point's limits.
type Settings struct {
	Log   *slog.Logger
	Entry gateway.EntryPoint
	// Entries is how many entry points there are.
	Entries int
	// Trusts says which peers are proxies: they may have more connections than a client.
	Trusts func(netip.Addr) bool
	// Refused counts by entry point and limit.
	Refused *prometheus.CounterVec
}

// New returns the limits of an entry point that has no connection.
func New(s Settings) *Limits {
	most := cmp.Or(s.Entry.MaxConnections, defaultConnections(s.Entries))
	return &Limits{log: s.Log, entry: s.Entry.Name, trusts: s.Trusts, refused: s.Refused, most: most,
		perClient: cmp.Or(s.Entry.MaxConnectionsPerClient, min(perClient, (most+1)/2)),
		clients:   map[netip.Addr]int{}}
}

// Open returns the number of connections.
func (l *Limits) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
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

// Peer is a client's connection, of TCP or QUIC.
type Peer interface{ RemoteAddr() net.Addr }

// Place is a connection that counts. Its methods may be called concurrently, and more than once.
type Place struct {
	limits *Limits
	// client is the address under which the connection counts. One of QUIC can move to another.
	client netip.Addr
	// end closes the connection.
	end func()
	// silent is nil when the client has sent a whole head of a request.
	silent *list.Element
	left   bool
}

// Enter counts a connection, and returns nil if there are too many. If the entry point is full, the
// connection replaces the oldest one whose client has sent no whole head of a request: its end is called.
func (l *Limits) Enter(c Peer, end func()) *Place {
	a := &Place{limits: l, client: clientOf(c), end: end}
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
func (l *Limits) place(a *Place) (evicted *Place, reason string) {
	oldest := l.silent.Front()
	switch {
	case l.clients[a.client] >= l.perClient && !l.trusts(a.client):
		return nil, "maxConnectionsPerClient"
	case l.all >= l.most && oldest == nil:
		return nil, "maxConnections"
	case l.all >= l.most:
		evicted, reason = oldest.Value.(*Place), "silent"
		l.free(evicted)
	}
	l.all++
	l.clients[a.client]++
	a.silent = l.silent.PushBack(a)
	return evicted, reason
}

// refuse counts and logs what a limit has refused. The caller holds the lock.
func (l *Limits) refuse(client netip.Addr, reason string) {
	l.refused.WithLabelValues(l.entry, reason).Inc()
	if time.Since(l.logged) > time.Minute {
		l.logged = time.Now()
		l.log.Warn("refuse connections: there are too many", "entry point", l.entry, "limit", reason,
			"connections", l.all, "client", client, "of this client", l.clients[client])
	}
}

// Heard says that the client has sent a whole head of a request, so no other connection replaces this one.
func (a *Place) Heard() {
	a.limits.mu.Lock()
	defer a.limits.mu.Unlock()
	a.limits.unlist(a)
}

// Leave says that the connection has ended.
func (a *Place) Leave() {
	a.limits.mu.Lock()
	defer a.limits.mu.Unlock()
	a.limits.free(a)
}

// free gives the place of a connection back. The caller holds the lock.
func (l *Limits) free(a *Place) {
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
func (l *Limits) unlist(a *Place) {
	if a.silent != nil {
		l.silent.Remove(a.silent)
		a.silent = nil
	}
}

// clientOf returns the address of a client. Those of one /64 of IPv6 are one client,
// which commonly has all addresses of it.
func clientOf(c Peer) netip.Addr {
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
