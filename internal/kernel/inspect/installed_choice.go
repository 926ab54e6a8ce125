package inspect

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Chooses returns the index of the real server that the service chooses for a
// client's new flow, and true if this depends on the flow alone. That is the case
// for source hashing, and for Maglev hashing if the client's port is known. It is
// not the case for IPVS, which uses secret hash keys, and with persistence, which
// depends on earlier flows.
func (s InstalledService) Chooses(client, host netip.AddrPort) (real int, known bool) {
	hashes, buckets := s.Scheduler.Traits().Hashes, len(s.Ring)
	whole := hashes == model.FullKey
	if buckets == 0 || s.Persistence > 0 || !client.Addr().IsValid() || whole && client.Port() == 0 ||
		hashes == model.NoKey {
		return 0, false
	}
	switch s.Plane {
	case model.PlaneEBPF:
		return int(s.Ring[ebpf.Choose(client, host, whole, buckets)]), true
	case model.PlaneNFT:
		key := client.Addr().AsSlice()
		if whole {
			key = binary.BigEndian.AppendUint16(key, client.Port())
		}
		return int(s.Ring[uint64(jhash(key, plan.HashSeed))*uint64(buckets)>>32]), true
	}
	return 0, false
}

// jhash is the kernel's hash function (include/linux/jhash.h, by Bob Jenkins,
// public domain) as nftables uses it: the last field of the key is padded to 4
// bytes.
func jhash(key []byte, seed uint32) uint32 {
	words := make([]uint32, (len(key)+3)/4)
	for i := range words {
		var raw [4]byte
		copy(raw[:], key[4*i:])
		words[i] = binary.NativeEndian.Uint32(raw[:])
	}
	start := 0xdeadbeef + uint32(4*len(words)) + seed
	h := [3]uint32{start, start, start}
	for ; len(words) > 3; words = words[3:] {
		for i := range h {
			h[i] += words[i]
		}
		h = jmix(h)
	}
	for i, w := range words {
		h[i] += w
	}
	return jfinal(h)
}

func jmix(h [3]uint32) [3]uint32 {
	a, b, c := h[0], h[1], h[2]
	for _, n := range [2][3]int{{4, 6, 8}, {16, 19, 4}} {
		a, c = (a-c)^bits.RotateLeft32(c, n[0]), c+b
		b, a = (b-a)^bits.RotateLeft32(a, n[1]), a+c
		c, b = (c-b)^bits.RotateLeft32(b, n[2]), b+a
	}
	return [3]uint32{a, b, c}
}

func jfinal(h [3]uint32) uint32 {
	a, b, c := h[0], h[1], h[2]
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	return (c ^ b) - bits.RotateLeft32(b, 24)
}
