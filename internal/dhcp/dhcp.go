// Package dhcp requests, renews and releases leases of DHCPv4 servers (RFC 2131)
// for links in sandboxes. It sets no addresses: it reports each lease to its
// caller, which sets the address.
//
// Theory of operation. A link without an address cannot send or receive with an
// ordinary socket, so the package requests a lease with a packet socket that
// accepts only DHCP answers. It asks the server to broadcast them: links that share
// a MAC address, such as ipvlan, receive nothing else before they have an address.
// The client id distinguishes them. If another host answers for the offered
// address (RFC 5227), the package declines it. It renews a lease with an ordinary
// socket from the leased address, which routes to a server behind a relay. If the
// server does not answer, it asks any server (RFC 2131, section 4.4.5).
//
// Sockets are open only during an exchange. So the process never receives other
// traffic of the link, and does not keep the namespace of an ended sandbox alive.
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

// Config identifies the client of a lease.
type Config struct {
	// Netns is the path of the sandbox's network namespace.
	Netns string
	// Link is the link's name there. It must be up.
	Link string
	// ClientID identifies the client in the network. If empty, the MAC address does.
	ClientID string
	// Hostname is sent to the server, which may e.g. register it in DNS.
	Hostname string
	// Last is the address of an earlier lease, which is requested again. The zero
	// value means any address.
	Last netip.Addr
	// Ends is when the earlier lease ends, by the clock of alarm.Now. Zero means that this is not known, or never.
	Ends time.Time
	// Failed is called once if there is no first lease, or the earlier one is not confirmed. Then the client goes on
	// asking. If it is nil, Run returns the error.
	Failed func(error)
}

// Lease is a DHCP lease. The zero value means that the lease was lost: the address
// must not be used.
type Lease struct {
	// Prefixes is the leased address with its network's prefix length.
	Prefixes []netip.Prefix
	// Gateways is the default gateway, if there is one.
	Gateways []netip.Addr
	Routes   []model.Route
	DNS      []netip.Addr
	// MTU is in bytes; 0 if the server does not set it.
	MTU    int
	Server netip.Addr
	// Renew is when to ask the server to renew the lease, Rebind when to ask any
	// server, and Expires when the lease ends, by the clock of alarm.Now. Zero means never.
	Renew, Rebind, Expires time.Time
}

// IsZero reports whether there is no lease.
func (l Lease) IsZero() bool { return len(l.Prefixes) == 0 }

// Errors that callers may act on.
var (
	// ErrNoServer means that no server answered.
	ErrNoServer = errors.New("no DHCP server answers")
	// ErrGone means that the sandbox has ended, so the lease is no longer needed.
	ErrGone = errors.New("the sandbox has ended")

	errRefused  = errors.New("the server refused the lease")
	errConflict = errors.New("the address is in use by another host")
)

// Run acquires a lease, renews it until ctx ends, and then releases it. It calls
// notify, always from one goroutine, with the first lease, with each renewed or
// new lease, and with the zero Lease after a loss, also after the end of an earlier
// lease that no server has confirmed. Returns ErrNoServer or another error, after a bounded time, if it cannot get a first lease and Config.Failed is nil, and ErrGone when the
// sandbox ends. After a later loss it tries until it gets a new lease.
func Run(ctx context.Context, c Config, notify func(Lease)) error {
	x, err := newClient(c)
	if err == nil {
		err = maintain(ctx, x, c, notify)
	}
	if err != nil {
		return fmt.Errorf("keep a DHCP lease on %s of %s: %w", c.Link, c.Netns, err)
	}
	return nil
}

// exchanger exchanges messages with servers. Each exchange takes a bounded time.
type exchanger interface {
	// acquire requests a new lease.
	acquire(ctx context.Context) (grant, error)
	// extend asks the lease's server, or any server, to renew a lease.
	extend(ctx context.Context, g grant, anyServer bool) (grant, error)
	// release releases a lease.
	release(g grant) error
	// now returns the time by the clock that leases count.
	now() time.Time
}

// grant is a lease with the server's acknowledgement.
type grant struct {
	Lease
	ack *dhcpv4.DHCPv4
}
