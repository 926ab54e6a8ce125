package daemon_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"
	"fairlead/test/place"
)

// What a client sends to each of two ports: messages small enough for one packet.
const (
	smallConnections = 3
	smallDatagrams   = 7
	smallMessage     = "hello"
)

// countPackets makes the client's namespace count the packets of a port.
const countPackets = `nft -f - <<'END'
table ip count {
	chain out { type filter hook postrouting priority 300; tcp dport 8080 counter; udp dport 5353 counter; }
	chain in { type filter hook prerouting priority -400; tcp sport 8080 counter; udp sport 5353 counter; }
}
END`

// counted returns what the client's namespace has counted: packets, and bytes of frames.
func (b watchedSandbox) counted(t *testing.T, proto model.Proto) (packets, bytes counter.InOut) {
	t.Helper()
	port := map[model.Proto]int{model.TCP: 8080, model.UDP: 5353}[proto]
	table := b.sh(t, "nft list table ip count")
	for end, into := range map[string][2]*uint64{"dport": {&packets.In, &bytes.In},
		"sport": {&packets.Out, &bytes.Out}} {
		_, after, _ := strings.Cut(table, fmt.Sprintf("%s %s %d counter ", proto, end, port))
		if _, err := fmt.Sscanf(after, "packets %d bytes %d", into[0], into[1]); err != nil {
			t.Fatalf("read the counter: %v in %s", err, table)
		}
		*into[1] += *into[0] * ethernetHeader
	}
	return packets, bytes
}

// ethernetHeader is the length of a frame's header in bytes.
const ethernetHeader = 14

// TestCountersOfPublishesAreExact compares the counters of each publish mode with what a
// client has sent and its namespace has counted: they are equal, or absent with the reason.
func TestCountersOfPublishesAreExact(t *testing.T) {
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
				{Via: via, Proto: model.UDP, HostPorts: model.Port(5353), Ports: model.Port(53)}}}
			if _, err := w.Publish(context.Background(), ask); err != nil {
				t.Fatal(err)
			}
			w.attach(api.AttachRequest{Endpoint: model.Endpoint{Name: "client", Network: "other", Sandbox: client.pid}})
			web.echoes(t, "tcp", ":80")
			web.echoes(t, "udp", ":53")
			client.sh(t, countPackets)
			client.exchangesSmall(t)
			compare := func() (wrong string) {
				for _, p := range w.Stats(context.Background()).Publishes {
					packets, bytes := client.counted(t, p.Proto)
					wrong += inexact(p, packets, bytes)
				}
				return wrong
			}
			wrong := compare()
			for begun := time.Now(); wrong != "" && time.Since(begun) < place.Timeout; { // the last packets come later
				wrong = compare()
			}
			if wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// exchangesSmall exchanges one message in each connection, and several datagrams.
func (b watchedSandbox) exchangesSmall(t *testing.T) {
	t.Helper()
	b.do(t, func() error {
		for range smallConnections {
			if err := exchange("tcp", netip.MustParseAddrPort("172.31.0.1:8080"), smallMessage); err != nil {
				return err
			}
		}
		conn, err := net.DialTimeout("udp", "172.31.0.1:5353", place.Timeout)
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
	})
}

// inexact returns how the counters of a publish differ from what the client has counted,
// in packets and bytes of frames; "" if they do not.
func inexact(p api.PublishStats, packets, bytes counter.InOut) string {
	flows, payload := uint64(smallConnections), uint64(smallConnections*len(smallMessage))
	datagrams := &counter.InOut{In: smallDatagrams, Out: smallDatagrams}
	if p.Proto == model.UDP {
		flows, payload = 1, uint64(smallDatagrams*len(smallMessage))
	} else {
		datagrams = nil
	}
	var wantBytes, wantPackets *counter.InOut
	switch p.Via {
	case model.ViaProxy:
		wantBytes, wantPackets = &counter.InOut{In: payload, Out: payload}, datagrams
	case model.ViaEBPF:
		wantBytes, wantPackets = &bytes, &packets
	}
	same := func(a, b *counter.InOut) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
	if p.Flows == nil || *p.Flows != flows || !same(p.Bytes, wantBytes) || !same(p.Packets, wantPackets) ||
		(p.Packets == nil || p.Bytes == nil) && p.NotCounted == "" {
		return fmt.Sprintf("%s: flows %s, bytes %+v, packets %+v, not counted: %q; want %d, %+v, %+v\n", p.Publish,
			counted(p.Flows), p.Bytes, p.Packets, p.NotCounted, flows, wantBytes, wantPackets)
	}
	return ""
}
