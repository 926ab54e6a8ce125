package block

import (
	"math/big"
	"net/netip"

	"fairlead/internal/cluster/record"
)

// maxCountBits limits how many blocks of a subnet are used.
const maxCountBits = 32

// DefaultBits returns the prefix length of the blocks of a subnet: 64 addresses, and smaller ones
// in subnets that have room for fewer than 16 of these.
func DefaultBits(subnet netip.Prefix) int {
	length := subnet.Addr().BitLen()
	return min(max(length-6, subnet.Bits()+4), length-record.MinHostBits)
}

// count returns how many blocks the subnet has.
func count(subnet netip.Prefix, bits int) uint64 { return 1 << min(bits-subnet.Bits(), maxCountBits) }

// nth returns block i of the subnet.
func nth(subnet netip.Prefix, bits int, i uint64) netip.Prefix {
	length := subnet.Addr().BitLen()
	at := new(big.Int).SetBytes(subnet.Addr().AsSlice())
	at.Add(at, new(big.Int).Lsh(new(big.Int).SetUint64(i), uint(length-bits)))
	addr, _ := netip.AddrFromSlice(at.FillBytes(make([]byte, length/8)))
	return netip.PrefixFrom(addr, bits)
}
