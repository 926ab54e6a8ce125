package ebpf

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// BenchmarkDirect measures what one packet of a flow that is forwarded direct costs
// in tc's program and in the driver's. The real server has the host's own
// hardware address, so that the packet is for the host again.
func BenchmarkDirect(b *testing.B) {
	for _, udp := range []bool{true, false} {
		for _, v6 := range []bool{false, true} {
			for _, program := range []string{Uplink, XDP} {
				b.Run(program+"/"+flowName(udp, v6), func(b *testing.B) { measureDirect(b, program, udp, !v6) })
			}
		}
	}
}

// directPerRun is how often a program is repeated after the first time: each time
// the packet is a hop older, and it may pass no more hosts than that.
const directPerRun = 250

func measureDirect(b *testing.B, program string, udp, v4 bool) {
	r := newBenchWith(b, forDriversToo)
	s := r.remote(udp, v4, ForwardDirect)
	client := client6
	if v4 {
		client = client4
	}
	r.fastOn(b, r.up)
	r.do(b, func() error {
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: r.up, State: netlink.NUD_PERMANENT, IP: s.Reals[0].At.Addr().AsSlice(), HardwareAddr: hostMAC})
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
				err = fmt.Errorf("it gives %d", act)
			}
			return err
		})
		return spent
	}
	var spent time.Duration
	for b.Loop() {
		r.forgetPaths(b) // what is known of one is kept for a second
		r.uplink(b, frame)
		spent -= run(1) // which is mostly what each run costs besides
		spent += run(1 + directPerRun)
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N)/directPerRun, "ns/packet")
}

// young is the frame of a packet that may pass as many hosts as any can.
func young(frame []byte) []byte {
	if frame[ethernet]>>4 == 6 {
		return edit(frame, ethernet+7, 255)
	}
	return resummed(edit(frame, ethernet+8, 255))
}

// onCPU is how long the calling thread has run, whatever else the machine does.
func onCPU() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
