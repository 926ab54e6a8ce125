package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"fairlead/internal/lab/program"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// handLink is the host's end of the veth pair that is made by hand.
const handLink = "vweb"

// The commands that make paths by hand.
var (
	ipCommand  = rig.Program{Name: "ip", Package: "iproute2"}
	nftCommand = rig.Program{Name: "nft", Package: "nftables"}
)

// byHand makes a path with the commands that an administrator would run, and no
// others: if the cost of one hop is measured, even a rule that only counts would
// be an additional hop.
type byHand struct{ rig.Base }

// Needs implements rig.Maker.
func (*byHand) Needs() rig.Needs { return rig.Needs{Programs: []rig.Program{ipCommand, nftCommand}} }

// Links implements rig.Maker.
func (h *byHand) Links(c result.Client) []rig.Link {
	links := []rig.Link{{Name: handLink}}
	if c == result.Outbound {
		links = append(links, h.OutboundLinks()...)
	}
	return links
}

// handDNAT publishes ports with one DNAT rule per protocol.
type handDNAT struct{ byHand }

func newHandDNAT(p suite.Path) rig.Maker { return &handDNAT{byHand{rig.Base{Path: p}}} }

// Start implements rig.Maker.
func (h *handDNAT) Start(_ context.Context, r *rig.Rig) error {
	return h.make(r, dnatRules(h.Addresses()))
}

// handMasquerade lets a sandbox open connections, with one rule.
type handMasquerade struct{ byHand }

func newHandMasquerade(p suite.Path) rig.Maker { return &handMasquerade{byHand{rig.Base{Path: p}}} }

// Start implements rig.Maker.
func (h *handMasquerade) Start(_ context.Context, r *rig.Rig) error {
	return h.make(r, masqueradeRules(h.Addresses()))
}

// handHops has only the hops that the path names.
type handHops struct{ byHand }

func newHandHops(p suite.Path) rig.Maker { return &handHops{byHand{rig.Base{Path: p}}} }

// Start implements rig.Maker.
func (h *handHops) Start(ctx context.Context, r *rig.Rig) error {
	if !h.Routed() {
		if err := r.World.Route(h.Addresses().Subnet); err != nil {
			return err
		}
	}
	if err := h.make(r, hopRules(h.Path)); err != nil || h.Routed() {
		return err
	}
	return proveFilter(ctx, r)
}

// Dial implements rig.Maker.
func (h *handHops) Dial(c result.Client, port uint16) netip.AddrPort {
	if c == result.Outbound {
		return h.byHand.Dial(c, port)
	}
	return netip.AddrPortFrom(h.Addr(), port)
}

// Proof implements rig.Maker.
func (h *handHops) Proof(w rig.Window, links *result.Proof) *result.Proof {
	if h.Path.Tracked {
		return h.byHand.Proof(w, links)
	}
	return rig.WithoutConntrack(links, w)
}

// make attaches the sandboxes, and adds the rules.
func (h *byHand) make(r *rig.Rig, rules string) error {
	at := h.Addresses()
	script := handForwarding(at)
	attach := handRouted
	if !h.Routed() {
		script += handBridge(at.Subnet, at.Gateway, h.Path.MTU) + handFilter(h.Path.Filter)
		attach = handBridged
	}
	for name, addr := range map[string]netip.Addr{rig.Workload: at.Workload, rig.Neighbor: at.Neighbor} {
		box, err := r.World.Sandbox(name)
		if err != nil {
			return err
		}
		script += attach("v"+name, program.ForOthers(box), at.Subnet, at.Gateway, addr, h.Path.MTU)
	}
	if r.Wants(result.OtherNetwork) {
		box, err := r.World.Sandbox(rig.Other)
		if err != nil {
			return err
		}
		script += handRouted("v"+rig.Other, program.ForOthers(box), at.OtherSubnet, at.OtherGateway, at.Other,
			h.Path.MTU)
	}
	return runByHand(r.World.DoServer, script+rules)
}

// handForwarding returns the command that makes the host a router.
func handForwarding(at *rig.Addresses) string {
	if at.IPv6() {
		return "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding\n"
	}
	return "echo 1 > /proc/sys/net/ipv4/ip_forward\n"
}

// noDAD returns the option of `ip addr add` that makes an IPv6 address usable at once.
func noDAD(a netip.Addr) string {
	if a.Is6() {
		return " nodad"
	}
	return ""
}

// handBridge returns the commands for the bridge, with the host's address.
func handBridge(subnet netip.Prefix, host netip.Addr, mtu int) string {
	return fmt.Sprintf("ip link add br0 mtu %d type bridge\nip addr add %s/%d dev br0%s\nip link set br0 up\n", mtu,
		host, subnet.Bits(), noDAD(host))
}

// handBridged returns the commands that attach a sandbox to the bridge.
func handBridged(link, box string, subnet netip.Prefix, gateway, addr netip.Addr, mtu int) string {
	return handVeth(link, box, gateway, mtu, fmt.Sprintf("ip link set %s master br0 up\n", link),
		fmt.Sprintf("ip addr add %s/%d dev eth0%s; ip link set eth0 up", addr, subnet.Bits(), noDAD(addr)))
}

// handRouted returns the commands that attach a sandbox by a route to it.
func handRouted(link, box string, _ netip.Prefix, gateway, addr netip.Addr, mtu int) string {
	return handVeth(link, box, gateway, mtu,
		fmt.Sprintf("ip addr add %[3]s/%[4]d dev %[1]s%[5]s\nip link set %[1]s up\nip route add %[2]s dev %[1]s\n",
			link, addr, gateway, addr.BitLen(), noDAD(addr)),
		fmt.Sprintf("ip addr add %[1]s/%[3]d dev eth0%[4]s; ip link set eth0 up; ip route add %[2]s dev eth0",
			addr, gateway, addr.BitLen(), noDAD(addr)))
}

// handVeth returns the commands for a veth pair, with the commands for its ends.
func handVeth(link, box string, gateway netip.Addr, mtu int, host, inside string) string {
	return fmt.Sprintf("ip link add %s mtu %d type veth peer name eth0 mtu %d netns %s\n", link, mtu, mtu, box) + host +
		fmt.Sprintf("nsenter --net=%s sh -e -c '%s; ip route add default via %s'\n", box, inside, gateway)
}

// handFilter returns the command that switches br_netfilter on or off; without
// that module, a kernel does not filter on bridges. In a new namespace it is on.
func handFilter(f model.Filter) string {
	if f == model.FilterKeep {
		return ""
	}
	value := map[model.Filter]int{model.FilterOn: 1}[f]
	return fmt.Sprintf("for f in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do "+
		"[ ! -e $f ] || echo %d > $f; done\n", value)
}

// dnatRules returns one DNAT rule per protocol.
func dnatRules(at *rig.Addresses) string {
	chain := "chain pre { type nat hook prerouting priority dstnat;"
	for _, proto := range []string{"tcp", "udp"} {
		chain += fmt.Sprintf(" %s daddr %s %s dport %d-%d dnat to %s;",
			nftFamily(at), at.Server, proto, rig.LoadPort, rig.LastPort, at.Workload)
	}
	return handTable(at, chain)
}

// masqueradeRules returns the rule that gives packets of the sandboxes to other hosts the
// host's address.
func masqueradeRules(at *rig.Addresses) string {
	return handTable(at, fmt.Sprintf("chain post { type nat hook postrouting priority srcnat; %s saddr %s oifname %s masquerade;",
		nftFamily(at), at.Subnet, topology.Wire))
}

// nftFamily returns nftables' name of the addresses' family.
func nftFamily(at *rig.Addresses) string {
	if at.IPv6() {
		return "ip6"
	}
	return "ip"
}

// hopRules returns a rule that makes conntrack follow forwarded packets, if the
// path needs one.
func hopRules(p suite.Path) string {
	if !p.Tracked {
		return ""
	}
	return handTable(rig.AddressesOf(p.Family), "chain follow { type filter hook forward priority filter; ct state established,related accept;")
}

// handTable returns the command for a table with a chain.
func handTable(at *rig.Addresses, chain string) string {
	return fmt.Sprintf("nft 'table %s byhand { %s }; }'\n", nftFamily(at), chain)
}

// proofPatience is how long a datagram between two sandboxes may take.
const proofPatience = 30 * time.Second

// proveFilter checks with a counter whether frames between two sandboxes pass the
// host's IP hooks, which they do only with br_netfilter. The counter is removed
// before the measurements.
func proveFilter(ctx context.Context, r *rig.Rig) error {
	const port = 9
	at := r.Addresses()
	_, err := program.Shell(r.World.DoServer, fmt.Sprintf("nft 'table %[1]s proof { counter frames {};"+
		" chain pre { type filter hook prerouting priority raw;"+
		" %[1]s saddr %[2]s %[1]s daddr %[3]s udp dport %[4]d counter name frames; }; }'",
		nftFamily(at), at.Neighbor, at.Workload, port))
	if err != nil {
		return fmt.Errorf("count frames: %w", err)
	}
	err = datagram(ctx, r.World, netip.AddrPortFrom(at.Workload, port))
	out, e := program.Shell(r.World.DoServer, fmt.Sprintf(
		"nft list counter %[1]s proof frames; nft delete table %[1]s proof", nftFamily(at)))
	if err = errors.Join(err, e); err != nil {
		return fmt.Errorf("count frames: %w", err)
	}
	seen, want := strings.Contains(out, "packets 1 "), r.Path.Filter == model.FilterOn
	if seen != want {
		return fmt.Errorf("br_netfilter on: want %v, but a frame on the bridge passed the IP hooks: %v", want, seen)
	}
	return nil
}

// datagram sends a datagram from the neighbour's sandbox to the workload's, and
// waits until it has arrived.
func datagram(ctx context.Context, w *topology.World, to netip.AddrPort) error {
	var listen net.ListenConfig
	var server net.PacketConn
	err := w.DoSandbox(rig.Workload, func() (err error) {
		server, err = listen.ListenPacket(ctx, "udp", to.String())
		return err
	})
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.SetReadDeadline(time.Now().Add(proofPatience)); err != nil {
		return err
	}
	if err := sendDatagram(w, rig.Neighbor, to); err != nil {
		return err
	}
	_, _, err = server.ReadFrom(make([]byte, 16))
	return err
}

// sendDatagram sends a datagram from a sandbox.
func sendDatagram(w *topology.World, sandbox string, to netip.AddrPort) error {
	return w.DoSandbox(sandbox, func() error {
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte("frame"))
		return err
	})
}
