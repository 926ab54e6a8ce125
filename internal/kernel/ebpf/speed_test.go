package ebpf

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
)

// BenchmarkProgram measures the time that each program needs for one packet of a
// flow. Two mappings translate into each other, so that the program's output is a
// packet of the other flow and the kernel can run the program on it again.
func BenchmarkProgram(b *testing.B) {
	for _, program := range []struct{ name, says string }{{"inward", Uplink}, {"outward", Sandbox}} {
		for _, udp := range []bool{true, false} {
			for _, v6 := range []bool{false, true} {
				b.Run(program.name+"/"+flowName(udp, v6), func(b *testing.B) { measure(b, program.says, udp, v6) })
			}
		}
	}
}

// packetsPerRun is how often the kernel repeats a program in one test run.
const packetsPerRun = 1 << 18

func flowName(udp, v6 bool) string {
	return map[bool]string{true: "udp", false: "tcp"}[udp] + map[bool]string{true: "6", false: "4"}[v6]
}

func measure(b *testing.B, program string, udp, v6 bool) {
	r := newBench(b)
	one, other, client := hostV4, otherV4, client4
	if v6 {
		one, other, client = hostV6, otherV6, client6
	}
	there, back := r.mapping(udp, one, 80, 80, 80, 0), r.mapping(udp, other, 80, 80, 80, 0)
	there.To, back.To = Address(other), Address(one)
	r.publish(b, there, back)
	in := first(udp, client, netip.AddrPortFrom(one, 80))
	r.uplink(b, in.frame())
	in.dst = netip.AddrPortFrom(other, 80)
	r.uplink(b, in.frame())
	link := r.up
	if program == Sandbox {
		in.src, in.dst, link = in.dst, in.src, r.web
	}
	if !udp {
		in.flags = ack
	}
	o := ebpf.RunOptions{Data: in.frame(), Context: skb{Ifindex: uint32(link)}, Repeat: packetsPerRun}
	b.ResetTimer()
	for b.Loop() {
		r.do(b, func() error { _, err := r.programs[program].Run(&o); return err })
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/packetsPerRun, "ns/packet")
}
