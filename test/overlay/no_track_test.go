package overlay_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/model"
	"fairlead/test/fabric"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// TestTunnelDatagramsAreNotTracked sends traffic of sandboxes and hosts through an overlay.
// conntrack must have entries for that traffic, and none for the tunnel's datagrams.
func TestTunnelDatagramsAreNotTracked(t *testing.T) {
	for name, c := range map[string]struct {
		v4    bool
		port  uint16
		group string
	}{
		"over IPv4":    {v4: true},
		"over IPv6":    {},
		"another port": {v4: true, port: 4790},
		"IPv4 group":   {v4: true, group: "239.0.0.99"},
		"IPv6 group":   {group: "ff05::99"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fabric.New(t, fabric.Options{Hosts: 2})
			n := network(f, c.v4)
			n.Overlay.Port = c.port
			var addrs [][]netip.Addr
			for i, h := range f.Hosts {
				own := n
				if c.group != "" {
					r := n.Overlay.Peers[i].Ranges
					own.Subnets = []model.Subnet{{Prefix: subnets[0].Prefix, Range: r[0]},
						{Prefix: subnets[1].Prefix, Range: r[1]}}
					own.Overlay = model.Overlay{VNI: 42, Group: addr(c.group), Underlays: []string{fabric.Underlay(0)}}
				}
				addrs = append(addrs, set(t, h, state(h, own, box(i))).Endpoints[0].Addresses)
			}
			reach(t, f, addrs)
			for _, h := range f.Hosts {
				noTrack(t, h, n.Overlay.WirePort())
			}
		})
	}
}

// noTrack fails the test if a host tracks datagrams of a tunnel, or does not track the traffic
// inside it.
func noTrack(t testing.TB, h *fabric.Host, tunnel uint16) {
	t.Helper()
	if !tracks(t, h, model.TCP, port) {
		t.Error("the host does not track the traffic inside the tunnel")
	}
	if tracks(t, h, model.UDP, tunnel) {
		t.Errorf("the host tracks datagrams to port %d", tunnel)
	}
}

// tracks reports whether conntrack has a flow to the port.
func tracks(t testing.TB, h *fabric.Host, proto model.Proto, port uint16) bool {
	t.Helper()
	found := false
	if _, err := h.Conntrack().Flush(func(f conntrack.Flow) bool {
		found = found || f.Proto == proto && f.Host.Port() == port
		return false
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// TestForwardedTunnelsAreTracked sends from a sandbox to a tunnel port of another program outside
// the overlay, which must receive the host's address.
func TestForwardedTunnelsAreTracked(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 2})
	h, other := f.Hosts[0], f.Hosts[1]
	n := network(f, true)
	set(t, h, state(h, n, "box1"))
	for name, v4 := range families {
		t.Run(name, func(t *testing.T) {
			to := netip.AddrPortFrom(other.Address(0, v4), model.PortVXLAN)
			var socket *net.UDPConn
			if err := other.Do(func() (err error) {
				socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(to))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer socket.Close()
			if err := h.In("box1")(func() error {
				conn, err := net.Dial("udp", to.String())
				if err != nil {
					return err
				}
				defer conn.Close()
				_, err = conn.Write([]byte("mine"))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if got := sender(t, socket); got != h.Address(0, v4) {
				t.Errorf("the datagram comes from %s; want it masqueraded as %s", got, h.Address(0, v4))
			}
		})
	}
}

// sender waits for a datagram and returns its source address.
func sender(t testing.TB, socket *net.UDPConn) netip.Addr {
	t.Helper()
	if err := socket.SetReadDeadline(time.Now().Add(place.Timeout)); err != nil {
		t.Fatal(err)
	}
	_, from, err := socket.ReadFromUDPAddrPort(make([]byte, 16))
	if err != nil {
		t.Fatal(err)
	}
	return from.Addr().Unmap()
}

// TestOverlaysShareTable removes one of two overlays with the same port.
func TestOverlaysShareTable(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 2})
	for _, h := range f.Hosts {
		first := network(f, true)
		second := network(f, true)
		second.Name, second.Overlay.VNI, second.Subnets = "second", 43, []model.Subnet{{Prefix: prefix("10.10.0.0/24")}}
		for i := range second.Overlay.Peers {
			second.Overlay.Peers[i].Ranges = []netip.Prefix{prefix([]string{"10.10.0.0/25", "10.10.0.128/25"}[i])}
		}
		set(t, h, model.State{Networks: []model.Network{first, second}})
	}
	addrs := everywhere(t, f, network(f, true)) // removes the second
	reach(t, f, addrs)
	noTrack(t, f.Hosts[0], model.PortVXLAN)
	undrifted(t, f)
}

// strict allows established and related traffic, and ICMP.
const strict = `nft 'table inet filter {
	chain input { type filter hook input priority filter; policy drop; ct state established,related accept;
		meta l4proto { icmp, icmpv6 } ct state invalid counter accept; meta l4proto { icmp, icmpv6 } accept; };
	chain output { type filter hook output priority filter; policy drop; ct state established,related accept;
		meta l4proto { icmp, icmpv6 } accept; }; }'
`

// TestBehindFirewall runs the commands of the documentation page.
func TestBehindFirewall(t *testing.T) {
	page, err := os.ReadFile("../../docs/paths/vxlan.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```text\nnft add rule")
	rules, _, _ := strings.Cut(rest, "```")
	f := fabric.New(t, fabric.Options{Hosts: 3})
	n := network(f, true)
	n.Overlay.Peers = n.Overlay.Peers[:2]
	var addrs []netip.Addr
	for i, h := range f.Hosts[:2] {
		sh(t, h.Do, strict+"nft add rule"+rules)
		addrs = set(t, h, state(h, n, box(i))).Endpoints[0].Addresses
		serve(t, h.In(box(i)), box(i))
	}
	h := f.Hosts[0]
	for _, to := range addrs {
		hears(t, h.In(box(0)), to, box(1))
	}
	refused(t, h, netip.AddrPortFrom(f.Hosts[2].Address(0, true), model.PortVXLAN))
	if got := sh(t, h.Do, "nft list chain inet filter input"); strings.Contains(got, "counter packets 0 ") {
		t.Errorf("conntrack does not treat the ICMP error as invalid:\n%s", got)
	}
}

// refused sends a datagram and waits for the ICMP error.
func refused(t testing.TB, h *fabric.Host, to netip.AddrPort) {
	t.Helper()
	var conn net.Conn
	if err := h.Do(func() (err error) { conn, err = net.Dial("udp", to.String()); return err }); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, writing := conn.Write([]byte("anyone?"))
	if err := errors.Join(writing, conn.SetReadDeadline(time.Now().Add(place.Timeout))); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("%s: %v, want connection refused", to, err)
	}
}
