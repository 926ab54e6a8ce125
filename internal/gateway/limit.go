package gateway

import (
	"cmp"
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

// enter counts a connection, and returns false if there are too many. The caller calls
// leave when an accepted connection has ended.
func (l *limits) enter(c peer) bool {
	client := clientOf(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	reason := ""
	switch {
	case l.all >= l.most:
		reason = "maxConnections"
	case l.clients[client] >= l.perClient && !l.trusts(client):
		reason = "maxConnectionsPerClient"
	default:
		l.all++
		l.clients[client]++
		return true
	}
	l.refused.WithLabelValues(l.entry, reason).Inc()
	if time.Since(l.logged) > time.Minute {
		l.logged = time.Now()
		l.log.Warn("refuse connections: there are too many", "entry point", l.entry, "limit", reason,
			"connections", l.all, "client", client, "of this client", l.clients[client])
	}
	return false
}

func (l *limits) leave(c peer) {
	client := clientOf(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.clients[client]--; l.clients[client] == 0 {
		delete(l.clients, client)
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
