package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// handLink is the host's end of the veth pair that is made by hand.
const handLink = "vweb"

// byHand runs the commands with which an administrator would build the path, and
// no others: if the cost of one hop is measured, even a rule that only counts
// would be an additional hop.
func byHand(ctx context.Context, r *rig) error {
	script := "echo 1 > /proc/sys/net/ipv4/ip_forward\n"
	if r.path.Driver == model.DriverBridge {
		script += handBridge("172.30.0.1", r.path.MTU) + handFilter(r.path.Filter)
	}
	for name, addr := range map[string]netip.Addr{web: workload, peer: neighbor} {
		box, err := r.world.Sandbox(name)
		if err != nil {
			return err
		}
		script += handVeth(r.path.Driver, "v"+name, otherProcess(box), addr, r.path.MTU)
	}
	script += handRules(r.path)
	if _, err := shell(r.world.DoServer, script); err != nil {
		return fmt.Errorf("set up by hand: %w", err)
	}
	if r.path.Peer == suite.HandHops && r.path.Driver == model.DriverBridge {
		return proveFilter(ctx, r)
	}
	return nil
}

// otherProcess returns the path of a sandbox for other processes, which find this
// process's descriptors under its pid.
func otherProcess(box string) string {
	return strings.Replace(box, "/proc/self", fmt.Sprintf("/proc/%d", os.Getpid()), 1)
}

// handBridge returns the commands for the bridge, with the host's address.
func handBridge(host string, mtu int) string {
	return fmt.Sprintf("ip link add br0 mtu %d type bridge\nip addr add %s/24 dev br0\nip link set br0 up\n", mtu, host)
}

// handVeth returns the commands that attach a sandbox: to the bridge, or routed
// without one.
func handVeth(d model.Driver, link, box string, addr netip.Addr, mtu int) string {
	host, inside := fmt.Sprintf("ip link set %s master br0 up\n", link), fmt.Sprintf("ip addr add %s/24 dev eth0; ip link set eth0 up", addr)
	if d == model.DriverRouted {
		host = fmt.Sprintf("ip addr add 172.30.0.1/32 dev %[1]s\nip link set %[1]s up\nip route add %[2]s dev %[1]s\n", link, addr)
		inside = fmt.Sprintf("ip addr add %s/32 dev eth0; ip link set eth0 up; ip route add 172.30.0.1 dev eth0", addr)
	}
	return fmt.Sprintf("ip link add %s mtu %d type veth peer name eth0 mtu %d netns %s\n", link, mtu, mtu, box) + host +
		fmt.Sprintf("nsenter --net=%s sh -e -c '%s; ip route add default via 172.30.0.1'\n", box, inside)
}

// handFilter returns the command that switches br_netfilter on or off; without
// that module, a kernel does not filter on bridges. In a new namespace it is on.
func handFilter(f model.Filter) string {
	if f == model.FilterKeep {
		return ""
	}
	value := map[model.Filter]int{model.FilterOn: 1}[f]
	return fmt.Sprintf("for f in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do [ ! -e $f ] || echo %d > $f; done\n", value)
}

// handRules returns the table that the path needs, if any: one DNAT rule per
// protocol, or a rule that makes conntrack follow forwarded packets.
func handRules(p suite.Path) string {
	var chain string
	switch {
	case p.Peer == suite.HandDNAT:
		chain = "chain pre { type nat hook prerouting priority dstnat;"
		for _, proto := range []string{"tcp", "udp"} {
			chain += fmt.Sprintf(" ip daddr %s %s dport %d-%d dnat to %s;", topology.ServerAddr4, proto, LoadPort, LastPort, workload)
		}
	case p.Tracked:
		chain = "chain follow { type filter hook forward priority filter; ct state established,related accept;"
	default:
		return ""
	}
	return fmt.Sprintf("nft 'table ip byhand { %s }; }'\n", chain)
}

// proofPatience is how long a datagram between two sandboxes may take.
const proofPatience = 30 * time.Second

// proveFilter checks with a counter whether frames between two sandboxes pass the
// host's IP hooks, which they do only with br_netfilter. The counter is removed
// before the measurements.
func proveFilter(ctx context.Context, r *rig) error {
	const port = 9
	_, err := shell(r.world.DoServer, fmt.Sprintf("nft 'table ip proof { counter frames {}; chain pre { type filter hook prerouting priority raw;"+
		" ip saddr %s ip daddr %s udp dport %d counter name frames; }; }'", neighbor, workload, port))
	if err != nil {
		return fmt.Errorf("count frames: %w", err)
	}
	err = datagram(ctx, r.world, netip.AddrPortFrom(workload, port))
	out, e := shell(r.world.DoServer, "nft list counter ip proof frames; nft delete table ip proof")
	if err = errors.Join(err, e); err != nil {
		return fmt.Errorf("count frames: %w", err)
	}
	seen, want := strings.Contains(out, "packets 1 "), r.path.Filter == model.FilterOn
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
	err := w.DoSandbox(web, func() (err error) {
		server, err = listen.ListenPacket(ctx, "udp4", to.String())
		return err
	})
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.SetReadDeadline(time.Now().Add(proofPatience)); err != nil {
		return err
	}
	err = w.DoSandbox(peer, func() error {
		client, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		defer client.Close()
		_, err = client.Write([]byte("frame"))
		return err
	})
	if err != nil {
		return err
	}
	_, _, err = server.ReadFrom(make([]byte, 16))
	return err
}

// shell runs a script in the namespace that do enters, up to its first failure.
func shell(do func(func() error) error, script string) (out string, err error) {
	err = do(func() error {
		b, err := exec.Command("sh", "-ec", script).CombinedOutput()
		if out = string(b); err != nil {
			return fmt.Errorf("%w: %s", err, bytes.TrimSpace(b))
		}
		return nil
	})
	return out, err
}
