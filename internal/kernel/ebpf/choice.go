package ebpf

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Choose returns the index of the bucket in which the programs find the real server of
// a flow (hash_of in bpf/include/services.h). buckets is the number of buckets. Choose
// hashes the client's address, or the whole flow if whole is true.
func Choose(client, host netip.AddrPort, whole bool, buckets int) int {
	h := hashAddress(0, client.Addr())
	if whole {
		h = hashWord(hashAddress(h, host.Addr()), uint32(client.Port())<<16|uint32(host.Port()))
	}
	return int(uint64(hashFinish(h)) * uint64(buckets) >> 32)
}

// hashWord and hashFinish are MurmurHash3 by Austin Appleby, public domain.
func hashWord(h, w uint32) uint32 {
	w = bits.RotateLeft32(w*0xcc9e2d51, 15)
	return bits.RotateLeft32(h^w*0x1b873593, 13)*5 + 0xe6546b64
}

func hashFinish(h uint32) uint32 {
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

func hashAddress(h uint32, a netip.Addr) uint32 {
	as16 := a.As16()
	for i := 0; i < len(as16); i += 4 {
		h = hashWord(h, binary.NativeEndian.Uint32(as16[i:]))
	}
	return h
}
