package tunnel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/link"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// SetWireGuard creates the WireGuard link or changes Fairlead's existing one. If a
// link of another program has the name, it returns an error and leaves that link
// unchanged.
func (h *Handle) SetWireGuard(want plan.WireGuard) error {
	key, err := privateKey(want)
	if err != nil {
		return err
	}
	handle, err := h.At("")
	if err != nil {
		return err
	}
	have, err := link.Managed(handle, "", want.Name,
		func(have netlink.Link) bool { return have.Type() == "wireguard" },
		func() (netlink.Link, error) {
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.MTU = want.Name, want.MTU
			made := &netlink.Wireguard{LinkAttrs: attrs}
			return made, link.AddMarked(handle, made, want.Alias(), 0)
		})
	if err != nil {
		return err
	}
	if err := handle.LinkSetAlias(have, want.Alias()); err != nil {
		return err
	}
	if err := link.AdjustEnd(handle, have, want.MTU, ""); err != nil {
		return err
	}
	if err := h.links.SetLinkSettings(want); err != nil {
		return err
	}
	if err := h.setKey(want, key); err != nil {
		return err
	}
	return portTaken(want.Port, handle.LinkSetUp(have))
}

// setKey sets the private key and port of the link. If a derived key changes, it removes
// all peers, because their keys change with the same secret.
func (h *Handle) setKey(want plan.WireGuard, key wgtypes.Key) error {
	have, err := h.wireguard(want.Name)
	if err != nil {
		return err
	}
	port := int(want.Port)
	cfg := wgtypes.Config{PrivateKey: &key, ListenPort: &port,
		ReplacePeers: want.PublicKey == "" && have.PrivateKey != key}
	return portTaken(want.Port, h.configure(want.Name, cfg))
}

// portTaken explains err if another program uses the UDP port.
func portTaken(port uint16, err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("UDP port %d is in use by another program: `ss -lunp sport = :%d` names it; "+
			"stop it, or give the overlay another port on all hosts", port, port)
	}
	return err
}

// ReadWireGuard returns the WireGuard link with the properties that the kernel
// has. It returns nil if the link is missing, not Fairlead's or down, or if its
// key is not the one derived from the secret.
func (h *Handle) ReadWireGuard(want plan.WireGuard) (plan.Object, error) {
	link, err := h.LinkByName("", want.Name)
	if err != nil {
		return nil, err
	}
	if link.Type() != "wireguard" || !rtnl.Ours(link) || !rtnl.IsUp(link) {
		return nil, nil
	}
	device, err := h.wireguard(want.Name)
	if err != nil {
		return nil, err
	}
	key, err := privateKey(want)
	if err != nil || device.PrivateKey != key {
		return nil, nil // setting it reports what is wrong with the file
	}
	want.Port, want.MTU = uint16(device.ListenPort), link.Attrs().MTU
	want.Owner = strings.TrimPrefix(link.Attrs().Alias, plan.Mark+":")
	want.IPv6, err = h.ReadIPv6(want, want.IPv6)
	return want, err
}

// SetWireGuardPeer creates the WireGuard peer, or changes it to this state. If the host has another key than
// before, its address moves to the new key in one step, and a handshake begins at once: the other host keeps what
// it sends until then. Only then is the earlier key removed, whose last packets may still be in progress.
func (h *Handle) SetWireGuardPeer(p plan.WireGuardPeer) error {
	key, err := publicKey(p)
	if err != nil {
		return err
	}
	device, err := h.wireguard(p.Link)
	if err != nil {
		return err
	}
	var earlier []wgtypes.PeerConfig
	for _, other := range device.Peers {
		if innerOf(other) == p.Inner && other.PublicKey != key {
			earlier = append(earlier, wgtypes.PeerConfig{PublicKey: other.PublicKey, Remove: true, UpdateOnly: true})
		}
	}
	peer := wgtypes.PeerConfig{PublicKey: key, Endpoint: net.UDPAddrFromAddrPort(p.Endpoint), ReplaceAllowedIPs: true,
		AllowedIPs: []net.IPNet{*nlutil.IPNet(netip.PrefixFrom(p.Inner, p.Inner.BitLen()))}}
	if len(earlier) == 0 {
		return h.configure(p.Link, wgtypes.Config{Peers: []wgtypes.PeerConfig{peer}})
	}
	now, never := time.Minute, time.Duration(0)
	peer.PersistentKeepaliveInterval = &now // the kernel sends the first one at once
	if err := h.configure(p.Link, wgtypes.Config{Peers: []wgtypes.PeerConfig{peer}}); err != nil {
		return err
	}
	return h.configure(p.Link, wgtypes.Config{Peers: append(earlier,
		wgtypes.PeerConfig{PublicKey: key, UpdateOnly: true, PersistentKeepaliveInterval: &never})})
}

// DelWireGuardPeer removes the peer that has the inner address.
func (h *Handle) DelWireGuardPeer(p plan.WireGuardPeer) error {
	device, err := h.wireguard(p.Link)
	if err != nil {
		return err
	}
	for _, peer := range device.Peers {
		if innerOf(peer) == p.Inner {
			return h.configure(p.Link, wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: peer.PublicKey,
				Remove: true, UpdateOnly: true}}})
		}
	}
	return nil
}

// ReadWireGuardPeer returns the WireGuard peer as the kernel has it; nil if it is missing.
func (h *Handle) ReadWireGuardPeer(want plan.WireGuardPeer) (plan.Object, error) {
	device, err := h.wireguard(want.Link)
	if err != nil {
		return nil, err
	}
	key, err := publicKey(want)
	if err != nil {
		return nil, nil // setting it reports what is wrong with the file
	}
	i := slices.IndexFunc(device.Peers, func(p wgtypes.Peer) bool { return p.PublicKey == key })
	if i < 0 || innerOf(device.Peers[i]) != want.Inner {
		return nil, nil
	}
	want.Endpoint = endpointOf(device.Peers[i], want.Endpoint, time.Now())
	return want, nil
}

// sessionLife is how long a session of WireGuard lives (Reject-After-Time in its white
// paper, section 6.1).
const sessionLife = 180 * time.Second

// endpointOf returns the endpoint of a peer. During a session it returns the wanted one:
// WireGuard itself sets the endpoint to the source of the last authentic packet, so the
// peer is where it says, also behind a NAT that has given it another port.
func endpointOf(p wgtypes.Peer, want netip.AddrPort, now time.Time) netip.AddrPort {
	switch {
	case now.Sub(p.LastHandshakeTime).Abs() < sessionLife:
		return want
	case p.Endpoint == nil:
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(p.Endpoint.AddrPort().Addr().Unmap(), p.Endpoint.AddrPort().Port())
}

// leftoverWireGuardPeers returns the peers of Fairlead's link that are in no plan.
func (h *Handle) leftoverWireGuardPeers(link string, known map[string]bool) (plan.Plan, error) {
	device, err := h.wireguard(link)
	if err != nil {
		return nil, err
	}
	var found plan.Plan
	for _, peer := range device.Peers {
		if p := (plan.WireGuardPeer{Link: link, Inner: innerOf(peer)}); !known[p.Key()] {
			found = append(found, p)
		}
	}
	return found, nil
}

// innerOf returns the first address that the peer may send from; the zero value if
// there is none.
func innerOf(p wgtypes.Peer) netip.Addr {
	if len(p.AllowedIPs) == 0 {
		return netip.Addr{}
	}
	return nlutil.Prefix(p.AllowedIPs[0].IP, p.AllowedIPs[0].Mask).Addr()
}

// wireguard reads the state of a WireGuard link.
func (h *Handle) wireguard(name string) (device *wgtypes.Device, err error) {
	err = h.withWireguard(func(c *wgctrl.Client) (err error) { device, err = c.Device(name); return err })
	return device, err
}

func (h *Handle) configure(name string, cfg wgtypes.Config) error {
	return h.withWireguard(func(c *wgctrl.Client) error { return c.ConfigureDevice(name, cfg) })
}

func (h *Handle) withWireguard(do func(*wgctrl.Client) error) error {
	return h.ns.Do(func() error {
		c, err := wgctrl.New()
		if err != nil {
			return fmt.Errorf("open WireGuard: %w", err)
		}
		defer c.Close()
		return do(c)
	})
}
