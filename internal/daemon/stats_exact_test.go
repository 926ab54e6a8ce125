package daemon_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/publish"
	"fairlead/test/place"
	"fairlead/test/shell"
)

// What a client sends to each port: messages small enough for one packet.
const (
	smallConnections = 3
	smallDatagrams   = 7
	smallMessage     = "hello"
)

// ethernetHeader is the length of a frame's header in bytes.
const ethernetHeader = 14

// figures are what a publish mode counts of clients' traffic.
type figures struct {
	flows bool
	// frames and payload are the unit in which it counts bytes. It counts packets if it counts frames, and datagrams if
	// it counts payload.
	frames, payload bool
}

// modeFigures has a row for each publish mode.
var modeFigures = map[model.Via]figures{
	model.ViaProxy:  {flows: true, payload: true},
	model.ViaNAT:    {flows: true},
	model.ViaEBPF:   {flows: true, frames: true},
	model.ViaSocket: {},
}

// exactPort is a published port, to which clients of one family connect.
type exactPort struct {
	via   model.Via
	proto model.Proto
	v4    bool
	port  uint16
}

func (p exactPort) String() string {
	return fmt.Sprintf("%s/%s/ipv%d", p.via, p.proto, map[bool]int{true: 4, false: 6}[p.v4])
}

// exactPorts returns a port for each mode that publishes endpoints of the driver, protocol and family.
func exactPorts(d model.Driver) (all []exactPort) {
	for _, m := range paths.Modes() {
		if m.Promises(d) == nil {
			continue
		}
		for _, proto := range []model.Proto{model.TCP, model.UDP} {
			for _, v4 := range []bool{true, false} {
				all = append(all, exactPort{m.Name(), proto, v4, 8080 + uint16(len(all))})
			}
		}
	}
	return all
}

// own returns the port of the workload.
func (p exactPort) own() uint16 { return p.port - 8000 }

// published returns the publish of the port.
func (p exactPort) published() model.Publish {
	return model.Publish{Via: p.via, Proto: p.proto, HostPorts: model.Port(p.port), Ports: model.Port(p.own())}
}

// publishesOf returns the publishes of the ports.
func publishesOf(all []exactPort) (publishes []model.Publish) {
	for _, p := range all {
		publishes = append(publishes, p.published())
	}
	return publishes
}

// serves echoes what clients send to the port, in a place.
func (p exactPort) serves(t testing.TB, in place.Place) {
	t.Helper()
	if at := fmt.Sprint(":", p.own()); p.proto == model.UDP {
		place.ServeUDP(t, in, at, place.EchoDatagram)
	} else {
		place.Serve(t, in, at, place.Echo)
	}
}

// TestEveryModeIsCounted: each publish mode has a row of figures, and each driver whose endpoints can be published
// has a network here, unless this kernel lacks it.
func TestEveryModeIsCounted(t *testing.T) {
	w := newWorld(t)
	for _, m := range paths.Modes() {
		if _, ok := modeFigures[m.Name()]; !ok {
			t.Errorf("the counters of publish mode %s are not tested", m.Name())
		}
	}
	for _, d := range paths.Drivers() {
		tested := d.Name().Traits().HostNetns ||
			slices.ContainsFunc(reachedNetworks, func(n model.Network) bool { return n.Driver == d.Name() })
		published := slices.ContainsFunc(paths.Modes(), func(m publish.Mode) bool {
			return m.Promises(d.Name()) != nil
		})
		if published && !tested && paths.Missing(w.facts, d.Needs()) == "" {
			t.Errorf("the counters of publishes of driver %s are not tested", d.Name())
		}
	}
}

// TestCountersOfPublishesAreExact compares the counters of each publish mode, on networks of each driver, with what
// a client of each family has sent and its host has counted: they are equal, or absent with the reason. It also
// compares the counters of the endpoint with the frames that its sandbox has counted.
func TestCountersOfPublishesAreExact(t *testing.T) {
	for _, n := range reachedNetworks {
		t.Run(string(n.Driver), func(t *testing.T) {
			t.Parallel()
			r, all := newReached(t, 0, false), exactPorts(n.Driver)
			n.Name = "web"
			r.network(n)
			r.joins("web", r.box)
			r.publish(r.box, publishesOf(all))
			for _, p := range all {
				p.serves(t, r.box.in)
			}
			r.box.sh(t, countFrames)
			before := r.uncounted(r.box)
			r.exact(all)
			after := r.uncounted(r.box)
			if n.Traits().SubLinks { // the kernel counts the header of a broadcast from the host's own macvlan twice
				after.Bytes.In = before.Bytes.In
			}
			if after != before {
				t.Errorf("the endpoint's counters have %+v more than its sandbox has counted, and %+v before", after, before)
			}
		})
	}
}

// TestCountersOfWorkloadsAreAbsent: Fairlead is not on the path of packets of workloads on the host's network. Their
// counters are absent, with the reason.
func TestCountersOfWorkloadsAreAbsent(t *testing.T) {
	r, all := newReached(t, 0, false), exactPorts(model.DriverHost)
	path, in := r.group()
	if _, err := r.Admit(api.Workload{Name: "shop", Ref: "container:shop", Cgroup: path,
		Publishes: publishesOf(all)}); err != nil {
		t.Fatal(err)
	}
	workload := func(fn func() error) (err error) {
		in(func() error { err = fn(); return nil })
		return err
	}
	for _, p := range all {
		p.serves(t, workload)
	}
	r.exact(all)
}

// exact makes the LAN count its packets, sends to each port, and compares the counters of the publishes.
func (r *reached) exact(all []exactPort) {
	r.Helper()
	var out, in strings.Builder
	for _, p := range all {
		fmt.Fprintf(&out, "%s dport %d counter; ", p.proto, p.port)
		fmt.Fprintf(&in, "%s sport %d counter; ", p.proto, p.port)
	}
	shell.Run(r, r.lan, fmt.Sprintf(`nft -f - <<'END'
table inet count {
	chain out { type filter hook postrouting priority 300; %s }
	chain in { type filter hook prerouting priority -400; %s }
}
END`, out.String(), in.String()))
	for _, p := range all {
		if err := r.lan(p.exchange); err != nil {
			r.Fatalf("%s: %v", p, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), place.Timeout)
	defer cancel()
	wrong := r.inexact(all)
	for wrong != "" && ctx.Err() == nil { // the last packets come later
		wrong = r.inexact(all)
	}
	if wrong != "" {
		r.Error(wrong)
	}
}

// exchange exchanges small messages with the port.
func (p exactPort) exchange() error {
	host := map[bool]string{true: "192.0.2.10", false: "2001:db8:9::10"}[p.v4]
	return exchangeSmall(p.proto, netip.AddrPortFrom(netip.MustParseAddr(host), p.port))
}

// exchangeSmall exchanges one message in each of several connections, or several datagrams.
func exchangeSmall(proto model.Proto, at netip.AddrPort) error {
	if proto == model.TCP {
		for range smallConnections {
			if err := exchange("tcp", at, smallMessage); err != nil {
				return err
			}
		}
		return nil
	}
	conn, err := net.DialTimeout("udp", at.String(), place.Timeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	for range smallDatagrams {
		if _, err := conn.Write([]byte(smallMessage)); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(place.Timeout)); err != nil {
			return err
		}
		if _, err := conn.Read(make([]byte, 100)); err != nil {
			return err
		}
	}
	return nil
}

// inexact returns how the counters of the publishes differ from what the LAN has counted; "" if they do not.
func (r *reached) inexact(all []exactPort) (wrong string) {
	r.Helper()
	table := shell.Run(r, r.lan, "nft list table inet count")
	stats := r.Stats(context.Background()).Publishes
	for _, p := range all {
		i := slices.IndexFunc(stats, func(s api.PublishStats) bool { return s.HostPorts.First == p.port })
		if i < 0 {
			wrong += fmt.Sprintf("%s: it has no counters\n", p)
			continue
		}
		packets, bytes := p.counted(r, table)
		wrong += p.wrong(stats[i], packets, bytes)
	}
	return wrong
}

// counted returns what the LAN has counted of a port: packets, and bytes of frames.
func (p exactPort) counted(t testing.TB, table string) (packets, bytes counter.InOut) {
	t.Helper()
	for end, into := range map[string][2]*uint64{"dport": {&packets.In, &bytes.In},
		"sport": {&packets.Out, &bytes.Out}} {
		_, after, _ := strings.Cut(table, fmt.Sprintf("%s %s %d counter ", p.proto, end, p.port))
		if _, err := fmt.Sscanf(after, "packets %d bytes %d", into[0], into[1]); err != nil {
			t.Fatalf("read the counter of %s: %v in %s", p, err, table)
		}
		*into[1] += *into[0] * ethernetHeader
	}
	return packets, bytes
}

// wrong returns how the counters of a publish differ from what the client has counted, in packets and bytes of frames;
// "" if they do not.
func (p exactPort) wrong(s api.PublishStats, packets, bytes counter.InOut) string {
	flows, n := uint64(smallConnections), uint64(smallConnections)
	var datagrams *counter.InOut
	if p.proto == model.UDP {
		flows, n = 1, smallDatagrams
		datagrams = &counter.InOut{In: n, Out: n}
	}
	payload := n * uint64(len(smallMessage))
	counts := modeFigures[p.via]
	var wantFlows *uint64
	var wantBytes, wantPackets *counter.InOut
	if counts.flows {
		wantFlows = &flows
	}
	switch {
	case counts.payload:
		wantBytes, wantPackets = &counter.InOut{In: payload, Out: payload}, datagrams
	case counts.frames:
		wantBytes, wantPackets = &bytes, &packets
	}
	if equal(s.Flows, wantFlows) && equal(s.Bytes, wantBytes) && equal(s.Packets, wantPackets) && packets.Out > 0 &&
		(s.NotCounted != "" || s.Flows != nil && s.Packets != nil && s.Bytes != nil) {
		return ""
	}
	return fmt.Sprintf("%s: flows %s, bytes %+v, packets %+v, not counted: %q; want %s, %+v, %+v\n", p,
		counted(s.Flows), s.Bytes, s.Packets, s.NotCounted, counted(wantFlows), wantBytes, wantPackets)
}

// equal reports whether two figures are equal, or both absent.
func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// countFrames makes a sandbox count the frames of its link.
const countFrames = `nft -f - <<'END'
table netdev count {
	chain in { type filter hook ingress device "eth0" priority -500; counter; }
	chain out { type filter hook egress device "eth0" priority 500; counter; }
}
END`

// uncounted returns by how much the counters of the sandbox's only endpoint exceed what countFrames has counted. It
// repeats the reading until no frame passes meanwhile.
func (w *world) uncounted(b watchedSandbox) counter.Traffic {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), place.Timeout)
	defer cancel()
	for {
		before := b.frames(w)
		s := w.Stats(context.Background())
		i := slices.IndexFunc(s.Endpoints, func(e api.EndpointStats) bool {
			return strings.HasSuffix(e.Endpoint, b.pid)
		})
		if i < 0 || s.Endpoints[i].Traffic == nil {
			w.Fatalf("the endpoint has no counters: %+v", s.Endpoints)
		}
		if after := b.frames(w); after == before {
			t := *s.Endpoints[i].Traffic
			t.Packets.In, t.Packets.Out = t.Packets.In-after.Packets.In, t.Packets.Out-after.Packets.Out
			t.Bytes.In, t.Bytes.Out = t.Bytes.In-after.Bytes.In, t.Bytes.Out-after.Bytes.Out
			return t
		}
		if ctx.Err() != nil {
			w.Fatalf("frames pass the link all the time")
		}
	}
}

// frames returns what countFrames has counted: packets, and bytes of frames. Only at egress do they have their header.
func (b watchedSandbox) frames(t testing.TB) (n counter.Traffic) {
	t.Helper()
	table := b.sh(t, "nft list table netdev count")
	_, in, _ := strings.Cut(table, "chain in ")
	_, out, _ := strings.Cut(table, "chain out ")
	for text, into := range map[string][2]*uint64{in: {&n.Packets.In, &n.Bytes.In},
		out: {&n.Packets.Out, &n.Bytes.Out}} {
		_, text, _ = strings.Cut(text, "counter ")
		if _, err := fmt.Sscanf(text, "packets %d bytes %d", into[0], into[1]); err != nil {
			t.Fatalf("read the counters of frames: %v in %s", err, table)
		}
	}
	n.Bytes.In += n.Packets.In * ethernetHeader
	return n
}
