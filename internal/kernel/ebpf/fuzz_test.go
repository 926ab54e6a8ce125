package ebpf

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// fuzzBench is a bench with the flows of errorCases, which it restores before
// every packet.
func fuzzBench(tb testing.TB) *bench {
	b := newBench(tb)
	b.publishUsual(tb)
	b.restore(tb)
	return b
}

// restore deletes all flows except those of errorCases.
func (b *bench) restore(tb testing.TB) {
	tb.Helper()
	b.forget(tb)
	for _, p := range errorCases {
		if act, _ := b.uplink(tb, p.frame()); act != redirect {
			tb.Fatalf("uplink returns %d for %s", act, p.dst)
		}
	}
}

// seeds returns frames of every sort: first those towards the host, then those of
// sandboxes.
func seeds() (inward, outward [][]byte) {
	for _, p := range errorCases {
		seen := p
		seen.dst = netip.AddrPortFrom(map[bool]netip.Addr{true: webV4, false: webV6}[p.src.Addr().Is4()], 80)
		if p.udp {
			seen.dst = netip.AddrPortFrom(seen.dst.Addr(), 53)
		}
		if p.dst.Port() == 9004 {
			seen.dst = netip.AddrPortFrom(seen.dst.Addr(), 7004)
		}
		options, silent, other := p, p, p
		options.options, silent.noSum, other.dst = true, p.udp, netip.AddrPortFrom(p.dst.Addr(), 8088)
		inward = append(inward, p.frame(), options.frame(), silent.frame(), other.frame(), tagged(p.frame()),
			icmpError(router(p), p.answer().frame(), 100))
		outward = append(outward, seen.answer().frame(), tagged(seen.answer().frame()),
			icmpError(seen.dst.Addr(), seen.frame(), 100))
		p.payload, seen.payload = make([]byte, 80), make([]byte, 80)
		inward = append(inward, p.fragments(64)...)
		outward = append(outward, seen.answer().fragments(64)...)
	}
	return inward, outward
}

// judge runs a program on an arbitrary frame. The frame is translated, passed on, or
// dropped for its source. A frame that is not translated is unchanged and creates no
// flow. A translated frame differs only where it must, and its checksums are as valid as
// before.
func (b *bench) judge(tb testing.TB, program string, frame []byte) {
	tb.Helper()
	link := map[string]int{Uplink: b.up, Sandbox: b.web}[program]
	act, out, err := b.try(tb, program, frame, skb{Ifindex: uint32(link)}, 0)
	if errors.Is(err, unix.EINVAL) {
		return // too short for the kernel to run a program for it
	}
	if err != nil {
		tb.Fatal(err)
	}
	// A translated frame may create a flow, so its flows are not counted.
	began := act != redirect && len(b.flows(tb)) > len(errorCases)
	switch {
	case act == redirect:
		checkChange(tb, program, frame, out)
	case act != untouched && act != dropped:
		tb.Errorf("%s returns %d for\n%x", program, act, frame)
	case !bytes.Equal(frame, out):
		tb.Errorf("%s did not translate\n%x\nbut changed it to\n%x", program, frame, out)
	case began:
		tb.Errorf("%s created a flow for\n%x", program, frame)
	}
	if tb.Failed() {
		tb.Fatalf("the frame is\n%x", frame)
	}
	if began || act == redirect {
		b.restore(tb)
	}
}

func FuzzPackets(f *testing.F) {
	b := fuzzBench(f)
	inward, outward := seeds()
	for _, frame := range inward {
		f.Add(true, frame)
	}
	for _, frame := range outward {
		f.Add(false, frame)
	}
	f.Fuzz(func(t *testing.T, up bool, frame []byte) {
		b.judge(t, map[bool]string{true: Uplink, false: Sandbox}[up], frame)
	})
}

// TestDamagedPackets does the same for a fixed number of frames and a fixed seed.
func TestDamagedPackets(t *testing.T) {
	b := fuzzBench(t)
	const seed = 4711
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	inward, outward := seeds()
	for range 10000 {
		b.judge(t, Uplink, damage(r, inward[r.IntN(len(inward))]))
		b.judge(t, Sandbox, damage(r, outward[r.IntN(len(outward))]))
	}
}

// damage returns a copy of the frame with some bytes of its headers changed. Sometimes
// the copy is truncated.
func damage(r *rand.Rand, frame []byte) []byte {
	frame = bytes.Clone(frame)
	for range 1 + r.IntN(3) {
		at := ethernet + r.IntN(min(len(frame)-ethernet, 100))
		if r.IntN(2) == 0 {
			frame[at] ^= 1 << r.IntN(8)
		} else {
			frame[at] = byte(r.IntN(256))
		}
	}
	if r.IntN(4) == 0 {
		frame = frame[:ethernet+r.IntN(len(frame)-ethernet)]
	}
	return frame
}
