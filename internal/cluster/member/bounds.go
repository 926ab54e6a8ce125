package member

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead/internal/cluster/trust"
)

// The limits of connections to the API. Any host can open connections, so nodes have places of their own, which a
// connection gets when it has proved to be of a node. Until then it has a place of greetings if it begins with the
// greeting of a node, so that connections without one do not end it. The address proves nothing: containers of a host
// have its address. It only decides whether a new connection may replace an older one of the same address: a node of
// an earlier version does not greet. If it may not, a host with many connections keeps its own ones, and gets no
// others: joining needs one.
const (
	placesOfNodes     = 512
	placesOfGreetings = 256
	placesOfAddresses = 256
	placesOfStrangers = 128
	placesPerNode     = 32
	placesPerAddress  = 8
	placesPerStranger = 8
)

// bounds counts the connections of each peer. Its methods may be called concurrently.
type bounds struct {
	// isNode reports whether an address is that of a node. greeted returns the id of the node that greets with a server
	// name, or an empty string.
	isNode  func(netip.Addr) bool
	greeted func(name string) string

	// mu protects the fields below.
	mu sync.Mutex
	// nodes are proven, greetings are those of nodes that have greeted, addresses are those of nodes without either, and
	// strangers are the others.
	nodes, greetings, addresses, strangers places
}

// places are those of one kind of peers.
type places struct {
	most, perPeer int
	// replace makes a new connection replace the oldest one if there is no place.
	replace bool
	// taken are in the order in which they were taken.
	taken []*place
}

// place is the place of one connection.
type place struct {
	peer string
	// kind is nil when the connection is closed, or was replaced.
	kind *places
	end  func()
}

func newBounds(isNode func(netip.Addr) bool, greeted func(name string) string) *bounds {
	return &bounds{isNode: isNode, greeted: greeted,
		nodes:     places{most: placesOfNodes, perPeer: placesPerNode},
		greetings: places{most: placesOfGreetings, perPeer: placesPerNode, replace: true},
		addresses: places{most: placesOfAddresses, perPeer: placesPerAddress, replace: true},
		strangers: places{most: placesOfStrangers, perPeer: placesPerStranger}}
}

// enter gives a connection a place, and returns false if there is none. first is what the connection begins with. end
// closes the connection if another one replaces it. A stranger with IPv6 is a /64, of which one host can have all
// addresses.
func (b *bounds) enter(peer netip.Addr, first []byte, end func()) (p *place, ok bool) {
	if node := b.greeted(serverName(first)); node != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		p = &place{peer: node, end: end}
		return p, b.greetings.take(p)
	}
	peer = peer.Unmap().WithZone("")
	kind, bits := &b.strangers, min(peer.BitLen(), 64)
	if b.isNode(peer) {
		kind, bits = &b.addresses, peer.BitLen()
	}
	host, err := peer.Prefix(bits)
	if err != nil {
		return nil, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p = &place{peer: host.String(), end: end}
	return p, kind.take(p)
}

// proved gives a connection a place of the node that its peer has proved to be, unless it has one. It returns false
// if there is none.
func (b *bounds) proved(p *place, node string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.kind == nil || p.kind == &b.nodes {
		return p.kind != nil
	}
	p.kind.free(p)
	p.peer = node
	return b.nodes.take(p)
}

// leave frees a place. It may be called more than once.
func (b *bounds) leave(p *place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.kind != nil {
		p.kind.free(p)
	}
}

// take takes a place, and reports whether there was one.
func (k *places) take(p *place) bool {
	var oldest *place // of the peer
	count := 0
	for _, other := range k.taken {
		if other.peer == p.peer {
			if count++; oldest == nil {
				oldest = other
			}
		}
	}
	full := len(k.taken) >= k.most
	if (full || count >= k.perPeer) && !k.replace {
		return false
	}
	switch {
	case count >= k.perPeer:
		oldest.end()
		k.free(oldest)
	case full:
		k.taken[0].end()
		k.free(k.taken[0])
	}
	p.kind = k
	k.taken = append(k.taken, p)
	return true
}

func (k *places) free(p *place) {
	p.kind = nil
	k.taken = slices.DeleteFunc(k.taken, func(other *place) bool { return other == p })
}

// boundListener closes connections of peers that have too many.
type boundListener struct {
	net.Listener
	bounds *bounds
}

// Accept returns the next connection.
func (l *boundListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if at, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
			if p, ok := l.bounds.enter(at.Addr(), peek(conn), func() { conn.Close() }); ok {
				return &boundConn{Conn: conn, bounds: l.bounds, place: p}, nil
			}
		}
		conn.Close()
	}
}

// boundConn is a connection that is counted until it is closed.
type boundConn struct {
	net.Conn
	bounds *bounds
	place  *place
}

// Close closes the connection.
func (c *boundConn) Close() error {
	c.bounds.leave(c.place)
	return c.Conn.Close()
}

// atRequest gives the connection of a request a place of a node, or closes it. Only then is it proved who the peer is:
// during the handshake, a host can show the certificate of any node, without its key.
func atRequest(c net.Conn, state http.ConnState) {
	secure, ok := c.(*tls.Conn)
	if !ok || state != http.StateActive {
		return
	}
	counted, ok := secure.NetConn().(*boundConn)
	if !ok {
		return
	}
	of := secure.ConnectionState()
	if peer, ok := trust.PeerOf(&of); ok && !counted.bounds.proved(counted.place, peer.Node) {
		c.Close()
	}
}

// The limits of join requests whose token the node does not know.
const (
	unknownTokens          = 8
	unknownTokensPerSecond = 1
)

// budget limits requests. Its method may be called concurrently.
type budget struct {
	mu    sync.Mutex
	spent float64
	at    time.Time
}

// allow reports whether a request may be made now, and counts it.
func (b *budget) allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(0, b.spent-max(0, now.Sub(b.at).Seconds())*unknownTokensPerSecond)
	b.at = now
	if b.spent > unknownTokens-1 {
		return false
	}
	b.spent++
	return true
}
