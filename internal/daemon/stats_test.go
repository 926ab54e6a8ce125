package daemon_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/stats"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"
	"fairlead/test/place"
)

// How many connections a client opens, and what it sends and receives in each.
const (
	exchanges = 3
	payload   = 100_000
)

// other is a second network, for a client whose packets the host routes.
var other = model.Network{Name: "other", Driver: model.DriverBridge,
	Subnets: []model.Subnet{{Prefix: prefix("172.31.0.0/16")}}}

// TestStats sends a known amount of traffic through each publish mode, and checks the
// counters.
func TestStats(t *testing.T) {
	for _, via := range []model.Via{model.ViaProxy, model.ViaNAT, model.ViaEBPF} {
		t.Run(string(via), func(t *testing.T) {
			w := newWorld(t).start()
			w.network(lan)
			w.network(other)
			web, client := w.watchedSandbox(), w.watchedSandbox()
			req := to(web)
			req.Name = "web"
			w.attach(req)
			ask := api.PublishRequest{Target: "web", Publishes: []model.Publish{
				{Via: via, Proto: model.TCP, HostPorts: model.Port(8080), Ports: model.Port(80)},
				{Via: via, Proto: model.TCP, HostPorts: model.PortRange{First: 8100, Last: 8109},
					Ports: model.PortRange{First: 8100, Last: 8109}},
				{Via: via, Proto: model.UDP, HostPorts: model.Port(5353), Ports: model.Port(53)},
			}}
			if _, err := w.Publish(context.Background(), ask); err != nil {
				t.Fatal(err)
			}
			w.attach(api.AttachRequest{Endpoint: model.Endpoint{Name: "client", Network: "other", Sandbox: client.pid}})
			for _, port := range []string{":80", ":8104"} {
				web.echoes(t, "tcp", port)
			}
			web.echoes(t, "udp", ":53")
			live := client.talks(t, "172.31.0.1:8080")
			s := w.Stats(context.Background())
			for begun := time.Now(); slices.ContainsFunc(s.Publishes, behind) && time.Since(begun) < place.Timeout; {
				s = w.Stats(context.Background())
			}
			for _, problem := range s.Problems {
				t.Error(problem)
			}
			for i := range s.Publishes {
				checkPublish(t, s.Publishes[i])
			}
			checkEndpoints(t, s)
			checkTotals(t, w.Totals(context.Background()), s)
			live.Close()
		})
	}
}

// checkTotals compares the sums over the host with the counters that were read before.
func checkTotals(t *testing.T, got stats.Totals, s api.Stats) {
	t.Helper()
	var bytes, flows uint64
	for _, n := range s.Networks {
		bytes += n.Traffic.Bytes.In
	}
	for _, p := range s.Publishes {
		flows += *p.Flows
	}
	if got.Traffic == nil || got.Traffic.Bytes.In < bytes || bytes == 0 || got.Flows == nil || *got.Flows != flows {
		t.Errorf("the totals are %+v, want %d bytes and %d flows", got, bytes, flows)
	}
	if s.Proxy != nil && (got.Proxy == nil || got.Proxy.CPUSeconds <= 0) {
		t.Errorf("the proxy's counters are %+v", got.Proxy)
	}
}

// behind reports whether a proxy has not yet counted all that talks has sent: the
// proxy accepts a connection, and counts bytes, later than its client.
func behind(p api.PublishStats) bool {
	flows, live, bytes := talked(p)
	return p.Via == model.ViaProxy && p.Flows != nil && p.Live != nil && p.Bytes != nil &&
		(*p.Flows < flows || *p.Live < live || p.Bytes.In < bytes || p.Bytes.Out < bytes)
}

// talked returns how many flows talks has opened and left open, and how many bytes it
// has sent in each direction.
func talked(p api.PublishStats) (flows, live, bytes uint64) {
	switch {
	case p.Proto == model.UDP:
		return 1, 1, 5
	case p.HostPorts.Len() > 1:
		return 1, 0, payload
	}
	return exchanges + 1, 1, exchanges * payload
}

// checkPublish compares the counters of a publish with what talks has sent.
func checkPublish(t *testing.T, p api.PublishStats) {
	t.Helper()
	flows, live, bytes := talked(p)
	if p.Flows == nil || *p.Flows != flows {
		t.Errorf("%s: %s flows, want %d", p.Publish, counted(p.Flows), flows)
	}
	if p.Live == nil || p.Proto == model.UDP && *p.Live != live || *p.Live < live || *p.Live > flows {
		t.Errorf("%s: %s open flows, want %d", p.Publish, counted(p.Live), live)
	}
	switch {
	case p.Via == model.ViaNAT:
		if p.Bytes != nil {
			t.Errorf("%s: counts bytes: %+v", p.Publish, *p.Bytes)
		}
	case p.Bytes == nil || p.Bytes.In < bytes || p.Bytes.Out < bytes || p.Bytes.In > bytes+bytes/10+200*flows:
		t.Errorf("%s: %+v bytes, want about %d each way", p.Publish, p.Bytes, bytes)
	case p.Via == model.ViaProxy && *p.Bytes != (counter.InOut{In: bytes, Out: bytes}):
		t.Errorf("%s: %+v bytes, want exactly %d each way", p.Publish, *p.Bytes, bytes)
	}
	if p.Via == model.ViaEBPF && (p.Packets == nil || p.Packets.In < flows || p.Drops == nil ||
		*p.Drops != (counter.InOut{})) {
		t.Errorf("%s: packets %+v, drops %+v", p.Publish, p.Packets, p.Drops)
	}
}

func counted(n *uint64) string {
	if n == nil {
		return "no"
	}
	return fmt.Sprint(*n)
}

// checkEndpoints checks that the links' counters include the traffic, also what eBPF
// programs redirect directly into the sandboxes.
func checkEndpoints(t *testing.T, s api.Stats) {
	t.Helper()
	const least = (exchanges + 1) * payload
	for _, e := range s.Endpoints {
		if e.Traffic == nil || e.Traffic.Bytes.In < least || e.Traffic.Bytes.Out < least ||
			e.Traffic.Bytes.In > 2*least {
			t.Errorf("endpoint %s: %+v, want at least %d bytes each way", e.Endpoint, e.Traffic, least)
		}
	}
	for _, n := range s.Networks {
		if n.Bytes.In < least {
			t.Errorf("network %s: %+v", n.Network, n.Traffic)
		}
	}
	if s.Attachments[api.Up] != 2 {
		t.Errorf("attachments: %v", s.Attachments)
	}
}

// echoes returns all data to the sender, until the test ends.
func (b watchedSandbox) echoes(t *testing.T, network, addr string) {
	t.Helper()
	if network == "udp" {
		place.ServeUDP(t, b.in, addr, place.EchoDatagram)
		return
	}
	place.Serve(t, b.in, addr, place.Echo)
}

// talks exchanges the payload several times with a server, once with another port of a
// range, and once in a datagram. It leaves one connection open.
func (b watchedSandbox) talks(t *testing.T, server string) (live net.Conn) {
	t.Helper()
	at := netip.MustParseAddrPort(server)
	b.do(t, func() error {
		for range exchanges {
			if err := exchange("tcp", at, strings.Repeat("x", payload)); err != nil {
				return err
			}
		}
		if err := exchange("tcp", netip.AddrPortFrom(at.Addr(), 8104), strings.Repeat("x", payload)); err != nil {
			return err
		}
		if err := exchange("udp", netip.AddrPortFrom(at.Addr(), 5353), "hello"); err != nil {
			return err
		}
		var err error
		live, err = net.DialTimeout("tcp", server, place.Timeout)
		return err
	})
	return live
}

// exchange sends a message and waits until all of it has come back.
func exchange(network string, at netip.AddrPort, message string) error {
	conn, err := net.DialTimeout(network, at.String(), place.Timeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	sent := make(chan error, 1)
	go func() { _, err := io.WriteString(conn, message); sent <- err }()
	if _, err := io.ReadFull(conn, make([]byte, len(message))); err != nil {
		return err
	}
	return <-sent
}

// TestStatsOfEveryLink sends datagrams from sandboxes with different kinds of links,
// some of external endpoints, and checks the counters.
func TestStatsOfEveryLink(t *testing.T) {
	const datagrams = 100
	w := newWorld(t).start()
	w.card()
	w.sh("set -e; ip link add up0 type veth peer name far0; ip link set up0 up; ip link set far0 up")
	talk := func(b watchedSandbox, link, to string) {
		b.sh(t,
			fmt.Sprintf("set -e; ip neigh add %s lladdr 02:00:00:00:00:99 dev %s; bash -c 'for i in $(seq %d); do echo hello > /dev/udp/%s/9; done'",
				to, link, datagrams, to))
	}
	b := w.watchedSandbox()
	w.attach(deviceRequest(b.pid))
	talk(b, "lan0", "203.0.113.99")
	w.network(model.Network{Name: "macvlan", Driver: model.DriverMacvlan, Parent: "up0",
		Subnets: []model.Subnet{{Prefix: prefix("172.32.0.0/16")}}})
	b = w.watchedSandbox()
	w.attach(api.AttachRequest{Endpoint: model.Endpoint{Name: "sublink", Network: "macvlan", Sandbox: b.pid}})
	talk(b, "eth0", "172.32.0.99")
	number := 2
	for name, n := range externals() {
		n.Name = "ext-" + name
		n.Subnets = []model.Subnet{{Prefix: prefix(fmt.Sprintf("172.4%d.0.0/16", number))}}
		w.network(n)
		b = w.watchedSandbox()
		e := w.externalEndpoint(b, n, number)
		talk(b, b.linkWith(t, e.Addresses[0]), fmt.Sprintf("172.4%d.0.99", number))
		number++
	}
	s := w.Stats(context.Background())
	if len(s.Endpoints) != 2+len(externals()) || len(s.Problems) > 0 {
		t.Errorf("%d endpoints, problems: %v", len(s.Endpoints), s.Problems)
	}
	for _, e := range s.Endpoints {
		if e.Traffic == nil || e.Traffic.Packets.Out < datagrams || e.Traffic.Packets.Out > 2*datagrams ||
			e.Traffic.Bytes.Out < 34*datagrams {
			t.Errorf("endpoint %s of %s: %+v, want %d packets out", e.Endpoint, e.Network, e.Traffic, datagrams)
		}
	}
}

// linkWith returns the link in the sandbox that has the address.
func (b watchedSandbox) linkWith(t *testing.T, addr netip.Addr) string {
	t.Helper()
	return strings.TrimSpace(b.sh(t, "ip -o addr show to "+addr.String()+" | awk '{print $2}'"))
}

// TestStatsOfHostClients: connections of a process of the host to a port published via
// ebpf count as flows, although no program sees their packets.
func TestStatsOfHostClients(t *testing.T) {
	w := newWorld(t).start()
	w.network(lan)
	web := w.watchedSandbox()
	req := to(web)
	req.Name = "web"
	w.attach(req)
	ask := api.PublishRequest{Target: "web", Publishes: []model.Publish{
		{Via: model.ViaEBPF, Proto: model.TCP, HostPorts: model.Port(8080), Ports: model.Port(80)}}}
	if _, err := w.Publish(context.Background(), ask); err != nil {
		t.Fatal(err)
	}
	web.echoes(t, "tcp", ":80")
	err := w.host.Do(func() error {
		for range exchanges {
			if err := exchange("tcp", netip.MustParseAddrPort("127.0.0.1:8080"), "hello"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s := w.Stats(context.Background())
	if p := s.Publishes[0]; p.Flows == nil || *p.Flows != exchanges || *p.Bytes != (counter.InOut{}) {
		t.Errorf("%s flows, %+v bytes, want %d and none", counted(p.Flows), p.Bytes, exchanges)
	}
	if e := s.Endpoints[0]; e.Traffic == nil || e.Traffic.Packets.In < exchanges {
		t.Errorf("the link carried %+v", e.Traffic)
	}
}

// TestNetworkKeepsTrafficOfEndpoints: a network's counters include those of removed
// endpoints.
func TestNetworkKeepsTrafficOfEndpoints(t *testing.T) {
	w := newWorld(t).start()
	w.network(lan)
	web := w.watchedSandbox()
	req := to(web)
	req.Name = "web"
	w.attach(req)
	web.sh(t,
		"set -e; ip neigh add 172.30.0.99 lladdr 02:00:00:00:00:99 dev eth0; bash -c 'for i in $(seq 100); do echo x > /dev/udp/172.30.0.99/9; done'")
	before := w.Stats(context.Background())
	if before.Networks[0].Packets.Out < 100 {
		t.Fatalf("%+v", before.Networks)
	}
	if _, err := w.Detach(context.Background(), api.DetachRequest{Network: "lan", Sandbox: web.pid}); err != nil {
		t.Fatal(err)
	}
	if gone := w.Stats(context.Background()); len(gone.Endpoints) != 0 ||
		gone.Networks[0].Packets.Out < before.Networks[0].Packets.Out {
		t.Errorf("after the endpoint was removed: %+v, before %+v", gone.Networks, before.Networks)
	}
	w.attach(req)
	if again := w.Stats(context.Background()); again.Networks[0].Packets.Out < before.Networks[0].Packets.Out {
		t.Errorf("after it was attached again: %+v, before %+v", again.Networks, before.Networks)
	}
}
