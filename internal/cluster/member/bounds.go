package member

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// The limits of connections to the API. Any host can open connections, so the nodes' addresses have
// places of their own, and the others have few per host: joining needs one.
const (
	placesOfNodes     = 512
	placesOfStrangers = 128
	placesPerNode     = 32
	placesPerStranger = 8
)

// bounds counts the connections of each peer.
type bounds struct {
	// isNode reports whether an address is that of a node.
	isNode func(netip.Addr) bool

	// mu protects the fields below.
	mu               sync.Mutex
	nodes, strangers places
}

// places are those of nodes, or of all other hosts.
type places struct {
	most, perPeer int
	taken         int
	peers         map[netip.Prefix]int
}

func newBounds(isNode func(netip.Addr) bool) *bounds {
	return &bounds{isNode: isNode,
		nodes:     places{most: placesOfNodes, perPeer: placesPerNode, peers: map[netip.Prefix]int{}},
		strangers: places{most: placesOfStrangers, perPeer: placesPerStranger, peers: map[netip.Prefix]int{}}}
}

// enter counts a connection, and returns a function that ends that. It returns false if there is no
// place for the peer. A stranger with IPv6 is a /64, of which one host can have all addresses.
func (b *bounds) enter(peer netip.Addr) (leave func(), ok bool) {
	peer = peer.Unmap().WithZone("")
	class, bits := &b.strangers, min(peer.BitLen(), 64)
	if b.isNode(peer) {
		class, bits = &b.nodes, peer.BitLen()
	}
	host, err := peer.Prefix(bits)
	if err != nil {
		return nil, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if class.taken >= class.most || class.peers[host] >= class.perPeer {
		return nil, false
	}
	class.taken++
	class.peers[host]++
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		class.taken--
		if class.peers[host]--; class.peers[host] == 0 {
			delete(class.peers, host)
		}
	}), true
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
			if leave, ok := l.bounds.enter(at.Addr()); ok {
				return &boundConn{Conn: conn, leave: leave}, nil
			}
		}
		conn.Close()
	}
}

// boundConn is a connection that is counted until it is closed.
type boundConn struct {
	net.Conn
	leave func()
}

// Close closes the connection.
func (c *boundConn) Close() error {
	c.leave()
	return c.Conn.Close()
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
