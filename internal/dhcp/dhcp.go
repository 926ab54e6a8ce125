// Package dhcp holds leases of DHCPv4 servers (RFC 2131) for links in
// sandboxes: it asks, renews, and releases. It sets no address; who runs it
// is told of each lease and does.
//
// Theory of operation. A link without an address can neither send nor receive
// by an ordinary socket, so a lease is asked for by a packet socket that lets
// in DHCP's answers only. The server is asked to broadcast them: links that
// share a MAC address, as ipvlan's, get nothing else before they have an
// address, and are told apart by the client id. An address that somebody in
// the network already answers for (RFC 5227) is declined. A lease is renewed
// with its server by an ordinary socket from the leased address, which finds
// the way to a server behind a relay; when that does not answer, with any
// server (RFC 2131, section 4.4.5).
//
// Sockets are open during an exchange only. So nothing of the link's other
// traffic ever reaches us, and a sandbox that ends is not kept alive.
//
// Limits: links with six bytes of hardware address (no InfiniBand, RFC 4390);
// no DHCPv6: in IPv6, routers announce networks and links choose addresses.
package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"fairlead/internal/model"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Config says whose lease it is.
type Config struct {
	// Netns is the path of the sandbox's network namespace.
	Netns string
	// Link is the link's name there. It must be up.
	Link string
	// ClientID tells the client from all others of the network, whatever its
	// MAC address; empty means that the MAC address does.
	ClientID string
	// Hostname is told to the server, which may know the sandbox by it then.
	Hostname string
	// Last is the address of an earlier lease, which the server is asked for
	// again; the zero value means any.
	Last netip.Addr
}

// Lease is what a server gives. The zero value means that there is none any
// more: the address must not be used.
type Lease struct {
	// Prefixes is the leased address with its network's length.
	Prefixes []netip.Prefix
	// Gateways is the default gateway, if there is one.
	Gateways []netip.Addr
	Routes   []model.Route
	DNS      []netip.Addr
	// MTU is in bytes; 0 means that the server says nothing.
	MTU    int
	Server netip.Addr
	// Renew and Rebind are when the server and then any server is asked to
	// prolong the lease, Expires when it ends. Zero means never.
	Renew, Rebind, Expires time.Time
}

// IsZero reports whether there is no lease.
func (l Lease) IsZero() bool { return len(l.Prefixes) == 0 }

// Errors that callers decide on.
var (
	// ErrNoServer says that no server answered.
	ErrNoServer = errors.New("no DHCP server answers")
	// ErrGone says that the sandbox has ended, and with it the lease's use.
	ErrGone = errors.New("the sandbox has ended")

	errRefused  = errors.New("the server refuses the lease")
	errConflict = errors.New("the address is in use by another host")
)

// Run holds a lease until ctx ends, and then releases it. It tells of the
// first lease, of each that is prolonged or replaced, and of its loss, from
// one goroutine. It fails, after a bounded time, when there is no first lease,
// and when the sandbox ends; later, it asks on.
func Run(ctx context.Context, c Config, notify func(Lease)) error {
	x, err := newClient(c)
	if err == nil {
		err = hold(ctx, x, notify)
	}
	if err != nil {
		return fmt.Errorf("hold a DHCP lease on %s of %s: %w", c.Link, c.Netns, err)
	}
	return nil
}

// exchanger speaks with servers; each exchange takes a bounded time.
type exchanger interface {
	// acquire asks for a new lease.
	acquire(ctx context.Context) (grant, error)
	// extend asks to prolong a lease, its server or any.
	extend(ctx context.Context, g grant, anyServer bool) (grant, error)
	// release gives a lease back.
	release(g grant) error
}

// grant is a lease with the server's word on it.
type grant struct {
	Lease
	ack *dhcpv4.DHCPv4
}
