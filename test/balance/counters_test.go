package balance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/model"
	"fairlead/test/place"
	"fairlead/test/shell"
)

// traffic counts IP packets and their bytes in each direction.
type traffic struct{ packetsIn, bytesIn, packetsOut, bytesOut uint64 }

// counts makes the client's host count its own packets to and from a port of the service.
func (s *site) counts(proto model.Proto, port int) {
	s.Helper()
	shell.Run(s, s.client.Do, fmt.Sprintf(`nft -f - <<'END'
table ip count {
	chain out { type filter hook postrouting priority 300; }
	chain in { type filter hook prerouting priority -400; }
}
add rule ip count out ip daddr 192.0.2.80 %[1]s dport %[2]d counter
add rule ip count in ip saddr 192.0.2.80 %[1]s sport %[2]d counter
END`, proto, port))
}

// counted returns what the client's host has counted.
func (s *site) counted(proto model.Proto, port int) (t traffic) {
	s.Helper()
	table := shell.Run(s, s.client.Do, "nft list table ip count")
	for end, into := range map[string][2]*uint64{"dport": {&t.packetsIn, &t.bytesIn},
		"sport": {&t.packetsOut, &t.bytesOut}} {
		_, after, _ := strings.Cut(table, fmt.Sprintf("%s %s %d counter ", proto, end, port))
		if _, err := fmt.Sscanf(after, "packets %d bytes %d", into[0], into[1]); err != nil {
			s.Fatalf("read the counter: %v in %s", err, table)
		}
	}
	return t
}

// real returns the counters of a service's only real server.
func (s *site) real(service string) api.RealStats {
	s.Helper()
	var all api.Stats
	if err := json.Unmarshal([]byte(s.daemon.Run("stats", "-o", "json")), &all); err != nil {
		s.Fatal(err)
	}
	for _, v := range all.Services {
		if v.Service == service {
			return v.Reals[0]
		}
	}
	s.Fatalf("no service %s in %+v", service, all)
	return api.RealStats{}
}

// reported returns the traffic of a real server in the unit of the data plane: ebpf counts
// frames.
func reported(r api.RealStats, plane model.Plane) (t traffic) {
	if r.Packets == nil || r.Bytes == nil {
		return t
	}
	t = traffic{packetsIn: *r.Packets.In, bytesIn: *r.Bytes.In}
	if r.Packets.Out != nil {
		t.packetsOut, t.bytesOut = *r.Packets.Out, *r.Bytes.Out
	}
	if plane == model.PlaneEBPF {
		const ethernet = 14 // bytes of a frame's header
		t.bytesIn -= ethernet * t.packetsIn
		t.bytesOut -= ethernet * t.packetsOut
	}
	return t
}

// flows waits until a service's only real server has had a number of flows. The kernel's IPVS adds up its counters every
// two seconds.
func (s *site) flows(service string, want uint64) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), place.Timeout)
	defer cancel()
	for {
		r := s.real(service)
		if r.Flows != nil && *r.Flows == want {
			return
		}
		if r.Flows == nil || *r.Flows > want || ctx.Err() != nil {
			s.Errorf("%s: %s flows, want %d", service, command.Number(r.Flows), want)
			return
		}
	}
}

// agrees waits until the counters of a service are those that the client's host has counted.
func (s *site) agrees(service string, plane model.Plane, proto model.Proto, port int, oneWay bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), place.Timeout)
	defer cancel()
	for {
		want, r := s.counted(proto, port), s.real(service)
		if oneWay {
			want.packetsOut, want.bytesOut = 0, 0
		}
		if got := reported(r, plane); got == want && want.packetsIn > 0 {
			return
		} else if ctx.Err() != nil {
			s.Errorf("%s on %s: counts %+v, want %+v", service, plane, got, want)
			return
		}
	}
}

// TestCounters compares the counters of each data plane with those of a client's host:
// they are equal, or absent with the reason.
func TestCounters(t *testing.T) {
	for name := range strings.SplitSeq(*planes, ",") {
		t.Run(name, func(t *testing.T) {
			s, plane := newSite(t), model.Plane(name)
			s.counts(model.TCP, 80)
			s.counts(model.UDP, 53)
			place.ServeUDP(t, s.servers.Do, "10.0.0.2:53", place.EchoDatagram)
			s.daemon.Run("service", "add", "web", "192.0.2.80:80", "--plane", name, "--real", "10.0.0.2")
			s.daemon.Run("service", "add", "dns", "192.0.2.80:53/udp", "--plane", name, "--real", "10.0.0.2")
			const connections, lines, datagrams = 3, 5, 7
			s.converse(connections, lines)
			s.ask("192.0.2.80:53", datagrams)
			flows := map[string]uint64{"web": connections, "dns": 1}
			for service, want := range flows {
				s.flows(service, want)
			}
			if !plane.Traits().FlowsOnly {
				s.agrees("web", plane, model.TCP, 80, false)
				s.agrees("dns", plane, model.UDP, 53, false)
				s.direct(plane)
				return
			}
			for service := range flows {
				if r := s.real(service); r.Packets != nil || r.Bytes != nil || r.NotCounted == "" {
					t.Errorf("%s: %+v, want no packets and bytes, and the reason", service, r)
				}
			}
			if text := s.metrics(); strings.Contains(text, "fairlead_real_bytes_total{") ||
				!strings.Contains(text, `fairlead_real_flows_total{service="web",real="10.0.0.2"} 3`) {
				t.Errorf("metrics:\n%s", text)
			}
			s.says("stats", "not counted for", "bytes and packets: the data plane sees only the first packet of a flow")
		})
	}
}

// direct checks that the answers of a real server that sends them to the client itself are
// not counted as 0.
func (s *site) direct(plane model.Plane) {
	s.Helper()
	s.counts(model.UDP, 54)
	s.daemon.Run("service", "add", "direct", "192.0.2.80:54/udp", "--plane", string(plane), "--forward",
		"direct", "--real", "10.0.0.3")
	known, err := place.Dial(s.host.Do, "tcp", "10.0.0.3:80", place.Timeout) // the neighbour
	if err != nil {
		s.Fatal(err)
	}
	defer known.Close()
	s.send("192.0.2.80:54", 4)
	s.agrees("direct", plane, model.UDP, 54, true)
	if r := s.real("direct"); r.Packets.Out != nil || r.Bytes.Out != nil ||
		!strings.Contains(r.NotCounted, "from the real server") {
		s.Errorf("direct on %s: %+v, want no packets from the real server, and the reason", plane, r)
	}
	if text := s.metrics(); strings.Contains(text, `service="direct",real="10.0.0.3",direction="out"`) ||
		!strings.Contains(text, `service="direct",real="10.0.0.3",direction="in"`) {
		s.Errorf("metrics:\n%s", text)
	}
}

// converse opens connections, and exchanges lines in each.
func (s *site) converse(connections, lines int) {
	s.Helper()
	for range connections {
		conn, err := place.Dial(s.client.Do, "tcp", "192.0.2.80:80", place.Timeout)
		if err != nil {
			s.Fatal(err)
		}
		answers := bufio.NewReader(conn)
		for i := range lines {
			if err := conn.SetDeadline(time.Now().Add(place.Timeout)); err != nil {
				s.Fatal(err)
			}
			if _, err := answers.ReadString('\n'); err != nil {
				s.Fatal(err)
			}
			if _, err := fmt.Fprintln(conn, strings.Repeat("x", i)); err != nil {
				s.Fatal(err)
			}
		}
		conn.Close()
	}
}

// send sends datagrams and returns the socket.
func (s *site) send(to string, datagrams int) net.Conn {
	s.Helper()
	conn, err := place.Dial(s.client.Do, "udp", to, place.Timeout)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { conn.Close() })
	for i := range datagrams {
		if _, err := conn.Write(make([]byte, 10+i)); err != nil {
			s.Fatal(err)
		}
	}
	return conn
}

// ask sends datagrams, and reads as many answers.
func (s *site) ask(to string, datagrams int) {
	s.Helper()
	conn := s.send(to, datagrams)
	for range datagrams {
		if err := conn.SetReadDeadline(time.Now().Add(place.Timeout)); err != nil {
			s.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 100)); err != nil {
			s.Fatal(err)
		}
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
