package ebpf

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// BenchmarkDirect measures the time that the tc program and the XDP program need for
// one packet of a flow with direct forwarding. The real server has the host's MAC
// address, so that the output is again a packet for the host.
func BenchmarkDirect(b *testing.B) {
	for _, udp := range []bool{true, false} {
		for _, v6 := range []bool{false, true} {
			for _, program := range []string{Uplink, XDP} {
				b.Run(program+"/"+flowName(udp, v6), func(b *testing.B) { measureDirect(b, program, udp, !v6) })
			}
		}
	}
}

// directPerRun is how often the kernel repeats a program after the first run. Each
// run decrements the packet's TTL, which starts at 255.
const directPerRun = 250

func measureDirect(b *testing.B, program string, udp, v4 bool) {
	r := newBench(b)
	s := r.remote(udp, v4, ForwardDirect)
	client := client6
	if v4 {
		client = client4
	}
	r.fastOn(b, r.up)
	r.do(b, func() error {
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: r.up, State: netlink.NUD_PERMANENT,
			IP: s.Reals[0].At.Addr().AsSlice(), HardwareAddr: hostMAC})
	})
	r.hold(b, s)
	call := first(udp, client, s.Frontends[0])
	r.uplink(b, call.frame())
	call.flags = ack
	frame := young(call.frame())
	o := ebpf.RunOptions{Data: frame, Context: skb{Ifindex: uint32(r.up)}}
	want := uint32(redirect)
	if program == XDP {
		o.Context, want = r.driver(frame), xdpTX
	}
	run := func(times uint32) (spent time.Duration) {
		o.Repeat = times
		r.do(b, func() error {
			before := onCPU()
			act, err := r.programs[program].Run(&o)
			spent = onCPU() - before
			if err == nil && act != want {
				err = fmt.Errorf("the program returns %d, want %d", act, want)
			}
			return err
		})
		return spent
	}
	var spent time.Duration
	for b.Loop() {
		r.forgetPaths(b) // a next hop is valid for one second only
		r.uplink(b, frame)
		spent -= run(1) // mostly the fixed cost of a test run
		spent += run(1 + directPerRun)
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N)/directPerRun, "ns/packet")
}

// young returns the frame with the largest TTL or hop limit, 255.
func young(frame []byte) []byte {
	if frame[ethernet]>>4 == 6 {
		return edit(frame, ethernet+7, 255)
	}
	return resummed(edit(frame, ethernet+8, 255))
}

// onCPU returns the CPU time of the calling thread, which does not depend on the
// machine's other load. Returns 0 if the clock cannot be read.
func onCPU() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
