package balance_test

import (
	"bufio"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/syntax"
	"fairlead/internal/wording"
	"fairlead/test/place"
	"fairlead/test/shell"
	"fairlead/test/unwrap"
)

// inVM are the data planes whose kernel modules this machine may lack: test/vm tests them.
var inVM = []string{string(model.PlaneIPVS)}

// forwarding is a forwarding method of a counted service.
type forwarding struct {
	model.Forward
	model.Tunnel
	// needs is the feature that the data plane must have.
	needs string
	// oneWay is true if answers do not pass through the host.
	oneWay bool
}

// forwardings has every forwarding method and tunnel, but not local, with which the host chooses no real server.
var forwardings = []forwarding{
	{Forward: model.ForwardNAT},
	{Forward: model.ForwardDirect, needs: "direct", oneWay: true},
	{Forward: model.ForwardTunnel, needs: "tunnel", oneWay: true},
	{model.ForwardTunnel, model.Tunnel{Type: model.TunnelGUE, Port: unwrap.GUE}, "gue", true},
}

// What a client sends to each service: connections with lines, or datagrams.
const (
	countedConnections = 3
	countedLines       = 5
	countedDatagrams   = 7
)

// counted is a service whose counters are compared.
type counted struct {
	forwarding
	proto model.Proto
	v4    bool
	port  int
}

func (c counted) String() string {
	return fmt.Sprintf("%s-%s-%s-ipv%d", c.Forward, cmp.Or(c.Type, "plain"), c.proto,
		map[bool]int{true: 4, false: 6}[c.v4])
}

// flows returns how many flows the client opens.
func (c counted) flows() uint64 {
	if c.proto == model.UDP {
		return 1
	}
	return countedConnections
}

// real returns the address of the service's only real server.
func (c counted) real() netip.Addr {
	if c.v4 {
		return netip.MustParseAddr("10.0.0.2")
	}
	return netip.MustParseAddr("fd00:10::2")
}

// service returns the service on a data plane.
func (c counted) service(plane model.Plane) model.VirtualService {
	return model.VirtualService{Name: c.String(), Addresses: []netip.Addr{vip(c.v4)},
		Ports: []model.PortRange{model.Port(uint16(c.port))}, Proto: c.proto, Plane: plane, Forward: c.Forward,
		Tunnel: c.Tunnel, Reals: []model.RealServer{{Address: c.real(), Weight: 1}}}
}

// countedOn returns a service for each forwarding method of the data plane, protocol and family.
func countedOn(plane model.Plane) (all []counted) {
	for _, f := range forwardings {
		if f.needs != "" && !slices.Contains(can[plane], f.needs) {
			continue
		}
		for _, proto := range []model.Proto{model.TCP, model.UDP} {
			for _, v4 := range []bool{true, false} {
				all = append(all, counted{f, proto, v4, 8001 + len(all)})
			}
		}
	}
	return all
}

// TestCounters compares the counters of each data plane, forwarding method, protocol and family
// with what a client's host has counted: they are equal, or absent with the reason.
func TestCounters(t *testing.T) {
	for name := range strings.SplitSeq(*planes, ",") {
		t.Run(name, func(t *testing.T) {
			s, plane := newSite(t), model.Plane(name)
			all := countedOn(plane)
			s.prepares(all)
			for _, c := range all {
				r := api.ServiceRequest{VirtualService: c.service(plane)}
				if _, err := admin.SetService.Do(t.Context(), s.daemon.Client, r); err != nil {
					t.Fatalf("%s: %v", c, err)
				}
			}
			for _, c := range all {
				s.converse(c)
			}
			s.agree(plane, all)
			s.exports(plane, all)
		})
	}
}

// TestEveryPlaneIsCounted: each data plane has a row in the table of features and is tested here or in a
// virtual machine, and each forwarding method has a row.
func TestEveryPlaneIsCounted(t *testing.T) {
	tested := append(strings.Split(flag.Lookup("planes").DefValue, ","), inVM...)
	for _, p := range paths.Planes() {
		if _, ok := can[p.Name()]; !ok || !slices.Contains(tested, string(p.Name())) {
			t.Errorf("the counters of data plane %s are not tested", p.Name())
		}
	}
	for _, f := range syntax.Forwards {
		known := slices.ContainsFunc(forwardings, func(o forwarding) bool { return string(o.Forward) == f })
		if !known && f != string(model.ForwardLocal) {
			t.Errorf("the counters of services with --forward %s are not tested", f)
		}
	}
}

// prepares makes the servers answer at the ports of the services, and the client's host count the packets.
func (s *site) prepares(all []counted) {
	s.Helper()
	var ports []int
	var out, in strings.Builder
	for _, c := range all {
		ports = append(ports, c.port)
		fmt.Fprintf(&out, "%s dport %d counter; ", c.proto, c.port)
		fmt.Fprintf(&in, "%s sport %d counter; ", c.proto, c.port)
	}
	serveAt(s, s.servers.Do, "server", ports...)
	for _, c := range all { // datagrams would be lost while the host resolves the address
		known, err := place.Dial(s.host.Do, "tcp", netip.AddrPortFrom(c.real(), uint16(c.port)).String(), place.Timeout)
		if err != nil {
			s.Fatal(err)
		}
		known.Close()
	}
	if slices.ContainsFunc(all, func(c counted) bool { return c.oneWay }) {
		for _, v4 := range []bool{true, false} {
			decapsulate(s, s.servers.Do, "eth0", model.Tunnel{Type: model.TunnelGUE, Port: unwrap.GUE}, v4)
		}
	}
	shell.Run(s, s.client.Do, fmt.Sprintf(`nft -f - <<'END'
table inet count {
	chain out { type filter hook postrouting priority 300; %s }
	chain in { type filter hook prerouting priority -400; %s }
}
END`, out.String(), in.String()))
}

// converse opens the connections of a service, or sends its datagrams, and waits for the answers.
func (s *site) converse(c counted) {
	s.Helper()
	from := map[bool]map[bool]string{false: {true: "198.51.100.1", false: "2001:db8:1::1"},
		true: {true: "203.0.113.100", false: "2001:db8:113::100"}}[c.oneWay][c.v4]
	d := net.Dialer{Timeout: place.Timeout, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	lines := countedLines
	if c.proto == model.UDP {
		d.LocalAddr, lines = &net.UDPAddr{IP: net.ParseIP(from)}, countedDatagrams
	}
	for range c.flows() {
		var conn net.Conn
		err := s.client.Do(func() (err error) {
			conn, err = d.Dial(string(c.proto), netip.AddrPortFrom(vip(c.v4), uint16(c.port)).String())
			return err
		})
		if err != nil {
			s.Fatalf("%s: %v", c, err)
		}
		s.Cleanup(func() { conn.Close() })
		answers := bufio.NewReader(conn)
		for i := range lines {
			if err := conn.SetDeadline(time.Now().Add(place.Timeout)); err != nil {
				s.Fatal(err)
			}
			if _, err := fmt.Fprintln(conn, strings.Repeat("x", i)); err != nil {
				s.Fatalf("%s: %v", c, err)
			}
			if _, err := answers.ReadString('\n'); err != nil {
				s.Fatalf("%s: the answer to line %d: %v", c, i, err)
			}
		}
		if c.proto == model.TCP {
			conn.Close()
		}
	}
}

// agree waits until the counters of all services are what the client's host has counted. The kernel's IPVS adds up
// its counters every two seconds, and the last packets of a connection come late.
func (s *site) agree(plane model.Plane, all []counted) {
	s.Helper()
	// In an emulator, counting without a pause takes longer than all conversations.
	for deadline := time.Now().Add(place.Timeout); ; time.Sleep(100 * time.Millisecond) {
		table := shell.Run(s, s.client.Do, "nft list table inet count")
		got, err := s.daemon.Client.Stats(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		var wrong []string
		for _, c := range all {
			in, out := c.sent(s, table)
			wrong = append(wrong, c.wrong(realOf(got, c.String()), plane, in, out)...)
		}
		if len(wrong) == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.Errorf("data plane %s:\n%s", plane, strings.Join(wrong, "\n"))
			return
		}
	}
}

// realOf returns the counters of a service's only real server.
func realOf(all api.Stats, service string) api.RealStats {
	i := slices.IndexFunc(all.Services, func(v api.ServiceStats) bool { return v.Service == service })
	if i < 0 || len(all.Services[i].Reals) == 0 {
		return api.RealStats{}
	}
	return all.Services[i].Reals[0]
}

// traffic is a number of IP packets and of their bytes.
type traffic struct{ packets, bytes uint64 }

// sent returns what the client's host has counted of a service: to it, and from it.
func (c counted) sent(t testing.TB, table string) (in, out traffic) {
	t.Helper()
	for end, into := range map[string]*traffic{"dport": &in, "sport": &out} {
		_, after, _ := strings.Cut(table, fmt.Sprintf("%s %s %d counter ", c.proto, end, c.port))
		if _, err := fmt.Sscanf(after, "packets %d bytes %d", &into.packets, &into.bytes); err != nil {
			t.Fatalf("read the counter of %s: %v in %s", c, err, table)
		}
	}
	return in, out
}

// wrong returns how the counters of the real server differ from what the client has sent and received.
func (c counted) wrong(r api.RealStats, plane model.Plane, in, out traffic) (all []string) {
	if r.Flows == nil || *r.Flows != c.flows() {
		all = append(all, fmt.Sprintf("%s: %s flows, want %d", c, wording.Number(r.Flows), c.flows()))
	}
	packets, bytes := r.Packets, r.Bytes
	if packets == nil || bytes == nil {
		packets, bytes = &api.Counted{}, &api.Counted{}
	}
	whole := !plane.Traits().FlowsOnly
	for _, d := range []struct {
		name           string
		packets, bytes *uint64
		sent           traffic
		counted        bool
	}{
		{"to the real server", packets.In, bytes.In, in, whole},
		{"from the real server", packets.Out, bytes.Out, out, whole && !c.oneWay},
	} {
		want := map[bool]string{true: d.sent.on(plane).String(), false: notCounted}[d.counted]
		if got := countOf(d.packets, d.bytes); got != want || d.sent.packets == 0 {
			all = append(all, fmt.Sprintf("%s %s: %s, want %s", c, d.name, got, want))
		}
	}
	reason := ""
	switch {
	case !whole:
		reason = "only the first packet of a flow"
	case c.oneWay:
		reason = "bytes and packets from the real server"
	}
	if !strings.Contains(r.NotCounted, reason) {
		all = append(all, fmt.Sprintf("%s: the reason is %q, want %q in it", c, r.NotCounted, reason))
	}
	return all
}

// on returns the traffic in the unit of the data plane: one whose programs are at the links counts frames.
func (t traffic) on(plane model.Plane) traffic {
	const ethernet = 14 // bytes of a frame's header
	if plane.Traits().AtLinks {
		t.bytes += ethernet * t.packets
	}
	return t
}

func (t traffic) String() string { return fmt.Sprintf("%d packets, %d bytes", t.packets, t.bytes) }

// notCounted is the text of figures that are absent.
const notCounted = "not counted"

// countOf returns the text of figures, which are both absent or both present.
func countOf(packets, bytes *uint64) string {
	switch {
	case packets == nil && bytes == nil:
		return notCounted
	case packets == nil || bytes == nil:
		return "packets without bytes, or bytes without packets"
	}
	return traffic{*packets, *bytes}.String()
}

// exports compares what Prometheus and the user see with what is counted.
func (s *site) exports(plane model.Plane, all []counted) {
	s.Helper()
	text := s.metrics()
	for _, c := range all {
		labels := fmt.Sprintf("service=%q,real=%q", c, model.RealServer{Address: c.real()})
		series := func(direction string) bool {
			return strings.Contains(text, fmt.Sprintf("fairlead_real_bytes_total{%s,direction=%q}", labels, direction))
		}
		in, out := series("in"), series("out")
		whole := !plane.Traits().FlowsOnly
		flows := strings.Contains(text, fmt.Sprintf("fairlead_real_flows_total{%s} %d\n", labels, c.flows()))
		if !flows || in != whole || out != (whole && !c.oneWay) {
			s.Errorf("metrics of %s: flows %t, bytes in %t, out %t:\n%s", c, flows, in, out, text)
		}
	}
	if plane.Traits().FlowsOnly {
		s.says("stats", "not counted for", "bytes and packets: the data plane sees only the first packet of a flow")
	}
}

// metrics returns what the daemon serves for Prometheus.
func (s *site) metrics() string {
	s.Helper()
	path := strings.TrimPrefix(s.daemon.Metrics, "unix:")
	client := http.Client{Timeout: place.Timeout, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
	r, err := client.Get("http://localhost/metrics")
	if err != nil {
		s.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		s.Fatal(err)
	}
	return string(text)
}
