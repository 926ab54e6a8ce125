package balance_test

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/model"
)

// BenchmarkFastPath sends small datagrams to a service that forwards directly, and
// reports how many of them arrive per second at its real servers, with and without
// the fast path. It uses veth links, whose results do not apply to network cards.
func BenchmarkFastPath(b *testing.B) {
	for _, choice := range []datapath.XDP{datapath.XDPNever, datapath.XDPAlways, datapath.XDPNever,
		datapath.XDPAlways} {
		b.Run(string(choice), func(b *testing.B) {
			l := fastLAN(b, choice)
			v := l.service(model.UDP, true, "far1", "far2")
			v.Forward = model.ForwardDirect
			for i := range v.Reals {
				v.Reals[i].Port = 0
			}
			l.set(v)
			for name := range far { // they do not answer
				l.sh(l.servers[name].Do, "ip route add blackhole 198.51.100.0/24; ip addr add "+vip4.String()+
					"/32 dev lo")
			}
			var conn *net.UDPConn
			if err := l.DoClient(func() (err error) {
				conn, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(vip4, 8080)))
				return err
			}); err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			l.flood(b, conn)
		})
	}
}

// flood sends b.N datagrams and reports how many arrive.
func (l *lan) flood(b *testing.B, conn *net.UDPConn) {
	b.Helper()
	before, small, begun := l.arrived(), make([]byte, 18), time.Now()
	b.ResetTimer()
	for range b.N {
		_, _ = conn.Write(small)
	}
	took := time.Since(begun)
	b.StopTimer()
	n := l.arrived() - before
	b.ReportMetric(float64(n)/took.Seconds(), "arrived/s")
	b.ReportMetric(100*float64(n)/float64(b.N), "%arrived")
}

// arrived returns the number of packets that the real servers' links have received.
func (l *lan) arrived() (sum uint64) {
	l.Helper()
	for _, ns := range l.servers {
		fields := strings.Fields(l.sh(ns.Do, "grep lan0: /proc/net/dev"))
		n, err := strconv.ParseUint(fields[2], 10, 64)
		if err != nil {
			l.Fatal(fmt.Errorf("read counters: %w", err))
		}
		sum += n
	}
	return sum
}
