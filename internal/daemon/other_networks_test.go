package daemon_test

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/test/place"
)

// reached is a host on a LAN, with a sandbox that may have other networks, as a container of an engine has.
type reached struct {
	*world
	lan place.Place
	box watchedSandbox
	// clients are the places from which the ports must be reached.
	clients map[string]place.Place
}

// upLinks connects the host to its LAN.
const upLinks = `set -e
ip link set lo up
sysctl -qw net.ipv6.conf.up0.accept_dad=0
ip addr add 192.0.2.10/24 dev up0
ip -6 addr add 2001:db8:9::10/64 dev up0 nodad
ip link set up0 up
ip route add default via 192.0.2.1
ip -6 route add default via 2001:db8:9::1`

const lanLinks = `set -e
ip link set lo up
ip addr add 192.0.2.1/24 dev eth0
ip -6 addr add 2001:db8:9::1/64 dev eth0 nodad
ip link set eth0 up`

// dropping is the firewall of a host on which Docker has enabled forwarding.
const dropping = `set -e
for t in iptables ip6tables; do $t -P FORWARD DROP; $t -N DOCKER-USER; $t -A FORWARD -j DOCKER-USER; done`

func newReached(t *testing.T, others int, drops bool) *reached {
	t.Helper()
	w := newWorld(t)
	router := w.watchedSandbox()
	w.sh("ip link add up0 type veth peer name eth0 netns " + router.pid)
	router.sh(t, lanLinks)
	w.sh(upLinks)
	if drops {
		w.sh(dropping)
	}
	r := &reached{world: w, lan: router.in, box: w.watchedSandbox()}
	for i := range others {
		w.sh(fmt.Sprintf(`set -e
ip link add br%[1]d type bridge
ip addr add 10.8%[1]d.0.1/24 dev br%[1]d
ip -6 addr add fd00:8%[1]d::1/64 dev br%[1]d nodad
ip link set br%[1]d up
ip link add port%[1]d type veth peer name eth%[1]d netns %[2]s
ip link set port%[1]d master br%[1]d up`, i, r.box.pid))
		r.box.sh(t, fmt.Sprintf(`set -e
ip addr add 10.8%[1]d.0.2/24 dev eth%[1]d
ip -6 addr add fd00:8%[1]d::2/64 dev eth%[1]d nodad
ip link set eth%[1]d up
[ %[1]d != 0 ] || { ip route add default via 10.80.0.1; ip -6 route add default via fd00:80::1; }`, i))
	}
	r.box.sh(t, "ip link set lo up")
	w.start()
	return r
}

// reachedNetworks are networks of each driver that this machine's kernel has.
var reachedNetworks = []model.Network{
	{Driver: model.DriverBridge, Subnets: subnets("172.30.0.0/24", "fd00:30::/64")},
	{Driver: model.DriverRouted, Subnets: subnets("172.30.0.0/24", "fd00:30::/64")},
	{Driver: model.DriverVXLAN, Subnets: []model.Subnet{
		{Prefix: prefix("172.30.0.0/24"), Range: prefix("172.30.0.0/25")},
		{Prefix: prefix("fd00:30::/64"), Range: prefix("fd00:30::/65")}},
		Overlay: model.Overlay{VNI: 7, Peers: []model.Peer{{Address: netip.MustParseAddr("192.0.2.1")}}}},
	{Driver: model.DriverMacvlan, Parent: "up0", Subnets: []model.Subnet{
		{Prefix: prefix("192.0.2.0/24"), Gateway: netip.MustParseAddr("192.0.2.1"), Range: prefix("192.0.2.128/25")},
		{Prefix: prefix("2001:db8:9::/64"), Gateway: netip.MustParseAddr("2001:db8:9::1"),
			Range: prefix("2001:db8:9::80/121")}}},
}

func subnets(ranges ...string) (all []model.Subnet) {
	for _, r := range ranges {
		all = append(all, model.Subnet{Prefix: prefix(r)})
	}
	return all
}

// TestPublishesBesideOtherNetworks publishes ports of a sandbox that has no, one or two other networks; one of them has
// the default route. The LAN, the host and other containers must reach the ports in each publish mode, over TCP and
// UDP, with both families, also where Docker drops forwarded packets. A mode that cannot work must be refused with the
// reason, and auto must not choose it.
func TestPublishesBesideOtherNetworks(t *testing.T) {
	for _, n := range reachedNetworks {
		for others := range 3 {
			for _, drops := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s-%d-drops-%t", n.Driver, others, drops), func(t *testing.T) {
					t.Parallel()
					r := newReached(t, others, drops)
					n := n
					n.Name = "web"
					r.network(n)
					r.network(model.Network{Name: "dmz", Driver: model.DriverBridge,
						Subnets: subnets("172.31.0.0/24", "fd00:31::/64")})
					r.joins("web", r.box)
					peer, stranger := r.watchedSandbox(), r.watchedSandbox()
					r.joins("web", peer)
					r.joins("dmz", stranger)
					r.clients = map[string]place.Place{"lan": r.lan, "host": r.host.Do, "peer": peer.in,
						"another network": stranger.in}
					place.Answer(t, r.box.in, ":80", func(q place.Request) string { return q.Client.Addr().String() })
					r.publishesAll(n.Driver, others > 0)
				})
			}
		}
	}
}

func (r *reached) joins(network string, b watchedSandbox) {
	r.Helper()
	req := to(b)
	req.Network, req.Name = network, network+b.pid
	r.attach(req)
}

// publishesAll publishes the sandbox in each mode. away means that its default route is on another network.
func (r *reached) publishesAll(d model.Driver, away bool) {
	r.Helper()
	for i, via := range []model.Via{model.ViaAuto, model.ViaEBPF, model.ViaNAT, model.ViaProxy} {
		port := uint16(8080 + i)
		var publishes []model.Publish
		for _, proto := range []model.Proto{model.TCP, model.UDP} {
			publishes = append(publishes, model.Publish{Via: via, Proto: proto, HostPorts: model.Port(port),
				Ports: model.Port(80)})
		}
		_, err := r.Publish(context.Background(), api.PublishRequest{Target: "web" + r.box.pid, Publishes: publishes})
		if refused := via == model.ViaEBPF && (away || d == model.DriverMacvlan); refused {
			const why = "default route is on another network"
			if err == nil || away && d != model.DriverMacvlan && !strings.Contains(err.Error(), why) {
				r.Errorf("via %s: %v, want that it cannot work", via, err)
			}
			continue
		}
		if err != nil {
			r.Errorf("via %s: %v", via, err)
			continue
		}
		for name, from := range r.clients {
			for _, addr := range []string{"192.0.2.10", "2001:db8:9::10"} {
				at := netip.AddrPortFrom(netip.MustParseAddr(addr), port)
				for _, network := range []string{"tcp", "udp"} {
					if err := ask(from, network, at.String()); err != nil {
						r.Errorf("via %s, %s from %s: %v", via, network, name, err)
					}
				}
			}
		}
	}
}

// ask sends a request and waits for the answer.
func ask(from place.Place, network, at string) error {
	conn, err := place.Dial(from, network, at, place.Timeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(place.Timeout))
	if _, err := fmt.Fprintln(conn, "ask"); err != nil {
		return err
	}
	_, err = bufio.NewReader(conn).ReadString('\n')
	return err
}
