package ebpf

import (
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// TestTimeOfAnotherCPU gives a flow and a client's affinity a time that is later than the
// clock, as if another CPU had stored it after this one had read the clock. Both stay.
func TestTimeOfAnotherCPU(t *testing.T) {
	b := newBench(t)
	s := b.served(false, true)
	s.Persistence = 3600
	b.hold(t, s)
	call := first(false, client4, s.Frontends[0])
	_, dst := ends(b.mustMap(t, "a call", Uplink, b.up, call.frame()))
	const later = uint64(1e9)
	b.alter(t, b.flows(t)[0], func(f *bpf.FairleadFlow) { f.Seen, f.Tick = f.Seen+later, f.Tick-1 })
	b.mustMap(t, "the call again", Uplink, b.up, call.frame())
	if c := b.counted(t, "web")[dst]; c.Flows != 1 {
		t.Errorf("the real server has had %d flows, want 1: the flow counts as idle for too long", c.Flows)
	}
	var key bpf.FairleadAffinityKey
	var a bpf.FairleadAffinity
	m := b.maps[bpf.FairleadMapFlAffinities]
	for it := m.Iterate(); it.Next(&key, &a); {
		a.Last += later
		if err := m.Put(key, a); err != nil {
			t.Fatal(err)
		}
	}
	for port := range uint16(4) {
		call.src = netip.AddrPortFrom(client4.Addr(), 41000+port)
		if _, now := ends(b.mustMap(t, "another call", Uplink, b.up, call.frame())); now != dst {
			t.Errorf("the client's next flow goes to %s, want %s", now, dst)
		}
	}
}

// TestTwoCPUsEndOneFlow runs the resets of many clients on two CPUs at once. The real
// server's active count loses one for each flow.
func TestTwoCPUsEndOneFlow(t *testing.T) {
	b := newBench(t)
	s := b.served(false, true)
	s.Ring, s.Reals = []uint16{0}, s.Reals[:1]
	b.hold(t, s)
	slot := int64(b.balancer.inUse["web"].slots[0]) * int64(loadSize)
	resets := make([][]byte, testFlows/2)
	for i := range resets {
		from := netip.AddrPortFrom(client4.Addr(), 20000+uint16(i))
		call := packet{src: from, dst: s.Frontends[0], flags: syn, seq: 1000}
		b.mustMap(t, "SYN", Uplink, b.up, call.frame())
		b.mustMap(t, "SYN and ACK", Sandbox, b.web,
			packet{src: s.Reals[0].At, dst: from, flags: syn | ack, seq: 7, ack: 1001}.frame())
		call.flags, call.seq = rst, 1001
		resets[i] = call.frame()
	}
	store(b.balancer.loads, slot, native(uint32(2*len(resets))))
	b.together(t, Uplink, [2][][]byte{resets, resets}, func() error { return nil })
	var l bpf.FairleadLoad
	if err := b.maps[bpf.FairleadMapFlLoads].Lookup(b.balancer.inUse["web"].slots[0], &l); err != nil {
		t.Fatal(err)
	}
	if int(l.Active) != len(resets) {
		t.Errorf("the active count is %d after %d of %d flows have ended", int32(l.Active), len(resets), 2*len(resets))
	}
}

// TestTwoCPUsReplaceOneFlow gives the only port of aliases, which a stale flow has, to new clients on two CPUs at the same
// time. Only one of them gets it: the real server would see both under one address, and one would get the other's replies.
func TestTwoCPUsReplaceOneFlow(t *testing.T) {
	b := newBenchWith(t, forLinks, func(spec *ebpf.CollectionSpec) {
		if err := spec.Variables[bpf.FairleadVarAliasCount].Set(uint32(1)); err != nil {
			t.Fatal(err)
		}
	})
	to := b.masqueraded(t).Frontends[0]
	const rounds = 8000
	var frames [2][][]byte
	for i := range uint16(rounds) {
		for cpu := range frames {
			from := netip.AddrPortFrom(client4.Addr(), 2000+20000*uint16(cpu)+i)
			frames[cpu] = append(frames[cpu], first(true, from, to).frame())
		}
	}
	flows := b.maps[bpf.FairleadMapFlFlowsUdp]
	outs := b.together(t, Uplink, frames, func() error {
		var key bpf.FairleadFlowKey
		var f bpf.FairleadFlow
		all := flows.Iterate()
		for all.Next(&key, &f) {
			f.Seen, f.Tick = f.Seen-uint64(udpAnswered)-1e9, f.Tick-1
			if err := flows.Put(key, f); err != nil {
				return err
			}
		}
		return all.Err()
	})
	both := 0
	for i := range rounds {
		if isUDP(outs[0][i]) && isUDP(outs[1][i]) {
			both++
		}
	}
	if both > 0 {
		t.Errorf("two clients got the same alias in %d of %d rounds", both, rounds)
	}
}

// isUDP reports whether a frame has a UDP packet. A refusal is an ICMP error.
func isUDP(frame []byte) bool { return len(frame) > 23 && frame[23] == unix.IPPROTO_UDP }

// together runs a program on frames of the first uplink, on two CPUs at the same time, and returns the redirected frames.
// One of them calls before, before both run the program on their frames with the same index.
func (b *bench) together(t *testing.T, program string, frames [2][][]byte, before func() error) (outs [2][][]byte) {
	t.Helper()
	ns := b.namespace(t)
	arrived, ready := make([]atomic.Int32, len(frames[0])), make([]atomic.Int32, len(frames[0]))
	var errs [2]error
	var wg sync.WaitGroup
	for cpu := range errs {
		wg.Go(func() {
			runtime.LockOSThread() // the thread ends with the goroutine, in the bench's namespace
			var only unix.CPUSet
			only.Set(cpu)
			err := errors.Join(unix.Setns(ns, unix.CLONE_NEWNET), unix.SchedSetaffinity(0, &only),
				unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO,
					Priority: 1}, 0))
			for i, frame := range frames[cpu] {
				for arrived[i].Add(1); arrived[i].Load() < 2; {
				}
				if cpu == 0 && err == nil {
					err = before()
				}
				for ready[i].Add(1); ready[i].Load() < 2; {
				}
				o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256),
					Context: skb{Ifindex: uint32(b.up)}}
				var act uint32
				if err == nil {
					act, err = b.programs[program].Run(&o)
				}
				if act != redirect {
					o.DataOut = nil
				}
				outs[cpu] = append(outs[cpu], o.DataOut)
			}
			errs[cpu] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return outs
}

// namespace returns the network namespace of the bench as a descriptor, open until the
// test ends.
func (b *bench) namespace(t *testing.T) (fd int) {
	t.Helper()
	b.do(t, func() (err error) {
		fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}
