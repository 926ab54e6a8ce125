package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/kernel/netns"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
)

const (
	// firstWait is how long to wait for the first answer. It doubles with each
	// repeat, so an exchange takes at most 15 s.
	firstWait = time.Second
	repeats   = 4
)

// asked are the requested options, classless routes before the default gateway
// (RFC 3442).
var asked = dhcpv4.OptParameterRequestList(
	dhcpv4.OptionSubnetMask, dhcpv4.OptionClasslessStaticRoute, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer,
	dhcpv4.OptionInterfaceMTU, dhcpv4.OptionRenewTimeValue, dhcpv4.OptionRebindingTimeValue)

// client exchanges messages with servers on a link in a sandbox.
type client struct {
	Config
	// sandbox is the namespace's id: another namespace may appear at the path.
	sandbox string
	// options are in every message.
	options []dhcpv4.Modifier
}

func newClient(c Config) (*client, error) {
	id, err := netns.Identify(c.Netns)
	if err != nil {
		return nil, err
	}
	x := &client{Config: c, sandbox: id}
	if c.ClientID != "" {
		// Type 0 means that the id is not a hardware address (RFC 2132, section 9.14).
		x.options = append(x.options, dhcpv4.WithOption(dhcpv4.OptClientIdentifier(append([]byte{0}, c.ClientID...))))
	}
	if c.Hostname != "" {
		x.options = append(x.options, dhcpv4.WithOption(dhcpv4.OptHostName(c.Hostname)))
	}
	return x, nil
}

// acquire implements exchanger.
func (x *client) acquire(ctx context.Context) (grant, error) {
	link, conn, err := x.packets()
	if err != nil {
		return grant{}, err
	}
	return x.ask(link, conn, func(c *nclient4.Client) (*dhcpv4.DHCPv4, error) {
		lease, err := x.request(ctx, c)
		if err != nil {
			return nil, err
		}
		used, err := x.inUse(ctx, lease.ACK.YourIPAddr)
		if used {
			err = fmt.Errorf("%s: %w", lease.ACK.YourIPAddr, errConflict)
			err = errors.Join(err, x.decline(conn, link, lease.ACK))
		}
		return lease.ACK, err
	})
}

// request asks for offers, preferably of the last address, and requests the first
// one.
func (x *client) request(ctx context.Context, c *nclient4.Client) (*nclient4.Lease, error) {
	options := slices.Concat(x.options, []dhcpv4.Modifier{dhcpv4.WithBroadcast(true), dhcpv4.WithOption(asked)})
	desired := options
	if x.Last.Is4() {
		desired = append(slices.Clone(options), dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(x.Last.AsSlice())))
	}
	offer, err := c.DiscoverOffer(ctx, desired...)
	if err != nil {
		return nil, err
	}
	return c.RequestFromOffer(ctx, offer, options...)
}

// extend implements exchanger.
func (x *client) extend(ctx context.Context, g grant, anyServer bool) (grant, error) {
	link, conn, to, err := x.towards(g, anyServer)
	if err != nil {
		return grant{}, err
	}
	return x.ask(link, conn, func(c *nclient4.Client) (*dhcpv4.DHCPv4, error) {
		request, err := dhcpv4.NewRenewFromAck(g.ack,
			slices.Concat(x.options, []dhcpv4.Modifier{dhcpv4.WithOption(asked)})...)
		if err != nil {
			return nil, err
		}
		answer, err := c.SendAndRead(ctx, to, request,
			nclient4.IsMessageType(dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak))
		if err == nil && answer.MessageType() == dhcpv4.MessageTypeNak {
			err = errRefused
		}
		return answer, err
	})
}

// release implements exchanger. Servers do not answer this message.
func (x *client) release(g grant) error {
	_, conn, to, err := x.towards(g, false)
	if errors.Is(err, ErrGone) {
		return nil // the lease will expire
	}
	if err != nil {
		return fmt.Errorf("release the lease: %w", err)
	}
	defer conn.Close()
	message, err := dhcpv4.NewReleaseFromACK(g.ack, x.options...)
	if err == nil {
		_, err = conn.WriteTo(message.ToBytes(), to)
	}
	if err != nil {
		return fmt.Errorf("release the lease: %w", err)
	}
	return nil
}

// decline informs the server that the address cannot be used.
func (x *client) decline(conn net.PacketConn, link *net.Interface, ack *dhcpv4.DHCPv4) error {
	message, err := dhcpv4.New(dhcpv4.PrependModifiers(x.options,
		dhcpv4.WithHwAddr(link.HardwareAddr),
		dhcpv4.WithMessageType(dhcpv4.MessageTypeDecline),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(ack.YourIPAddr)),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(ack.ServerIdentifier())))...)
	if err == nil {
		_, err = conn.WriteTo(message.ToBytes(), nclient4.DefaultServers)
	}
	if err != nil {
		return fmt.Errorf("decline %s: %w", ack.YourIPAddr, err)
	}
	return nil
}

// now implements exchanger. Leases end while the host is suspended, too, and whatever the time of day is set to.
func (x *client) now() time.Time { return alarm.Now() }

// ask makes an exchange over the connection, which it closes, and parses the
// server's answer.
func (x *client) ask(link *net.Interface, conn net.PacketConn,
	exchange func(*nclient4.Client) (*dhcpv4.DHCPv4, error)) (grant, error) {
	c, err := nclient4.NewWithConn(conn, link.HardwareAddr, nclient4.WithTimeout(firstWait),
		nclient4.WithRetry(repeats))
	if err != nil {
		conn.Close()
		return grant{}, err
	}
	defer c.Close()
	begin := x.now()
	ack, err := exchange(c)
	refused := (*nclient4.ErrNak)(nil)
	switch {
	case errors.Is(err, nclient4.ErrNoResponse):
		return grant{}, ErrNoServer
	case errors.As(err, &refused):
		return grant{}, fmt.Errorf("%w: %w", errRefused, err)
	case err != nil:
		return grant{}, err
	}
	l, err := parse(ack, begin)
	return grant{l, ack}, err
}
