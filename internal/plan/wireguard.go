package plan

import (
	"fmt"
	"net/netip"

	"fairlead/internal/escape"
)

// WireGuard is a WireGuard link that carries an overlay. Each host's key pair is
// derived from the secret in KeyFile, which all hosts share, and from the host's
// address. So each host can derive the public keys of the others. With PublicKey,
// KeyFile has the host's own private key. A plan never contains secret keys.
type WireGuard struct {
	Name    string
	KeyFile string
	// PublicKey is the public key, base64, of the private key in KeyFile. It is empty if the
	// key is derived.
	PublicKey string
	// Local is the host's address as the other hosts know it.
	Local netip.Addr
	// Port is the UDP port that the link listens on.
	Port uint16
	MTU  int
	// Owner completes the alias: the network's name.
	Owner string
	// IPv6 is the link's mode.
	IPv6 IPv6
}

// Ends implements linker.
func (c WireGuard) Ends() []string { return []string{end("", c.Name)} }

// adjusts implements linker. All settings can be changed on an existing link.
func (c WireGuard) adjusts(old Object) bool { _, ok := old.(WireGuard); return ok }

// Alias returns the link's alias, which starts with Mark.
func (c WireGuard) Alias() string { return Mark + ":" + c.Owner }

// Key implements Object. It equals the key of any link with this name.
func (c WireGuard) Key() string { return Link{Name: c.Name}.Key() }

// Add implements Object.
func (c WireGuard) Add() []string {
	return append([]string{fmt.Sprintf("ip link add %s mtu %d type wireguard", escape.Shell(c.Name), c.MTU)},
		c.set()...)
}

// set implements settable.
func (c WireGuard) set() []string {
	key := escape.Shell(c.KeyFile)
	if c.PublicKey == "" {
		key = fmt.Sprintf("<(private key of %s by %s)", c.Local, key)
	}
	return append(writeSettings(c.settings()),
		fmt.Sprintf("wg set %s listen-port %d private-key %s", escape.Shell(c.Name), c.Port, key),
		fmt.Sprintf("ip link set %s alias %s mtu %d up", escape.Shell(c.Name), escape.Shell(c.Alias()), c.MTU))
}

// Del implements Object.
func (c WireGuard) Del() []string { return []string{"ip link del " + escape.Shell(c.Name)} }

// WireGuardPeer is another host that the WireGuard link exchanges packets with.
type WireGuardPeer struct {
	Link    string
	KeyFile string
	// PublicKey is the host's key, base64. It is empty if it is derived from the secret in
	// KeyFile.
	PublicKey string
	// Endpoint is the host's address and port on the underlay.
	Endpoint netip.AddrPort
	// Inner is the host's address inside the tunnel.
	Inner netip.Addr
}

// Key implements Object.
func (p WireGuardPeer) Key() string { return "wireguard peer " + p.Link + " " + p.Inner.String() }

// Add implements Object.
func (p WireGuardPeer) Add() []string {
	return []string{fmt.Sprintf("wg set %s endpoint %s allowed-ips %s", p.peer(), p.Endpoint,
		netip.PrefixFrom(p.Inner, p.Inner.BitLen()))}
}

// Del implements Object.
func (p WireGuardPeer) Del() []string { return []string{"wg set " + p.peer() + " remove"} }

func (p WireGuardPeer) peer() string {
	if p.PublicKey != "" {
		return escape.Shell(p.Link) + " peer " + escape.Shell(p.PublicKey)
	}
	return fmt.Sprintf("%s peer $(public key of %s by %s)", escape.Shell(p.Link), p.Endpoint.Addr(),
		escape.Shell(p.KeyFile))
}

func (p WireGuardPeer) base() string { return end("", p.Link) }
