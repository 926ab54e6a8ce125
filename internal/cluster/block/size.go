package block

import (
	"fmt"
	"math/big"
	"net/netip"

	"fairlead/internal/cluster/record"
)

// The limits of blocks.
const (
	// minHostBits leaves room for the host's own address and for sandboxes.
	minHostBits = 2
	// maxHostBits limits what a network has on each host for each block.
	maxHostBits = 10
	// maxCountBits limits how many blocks of a subnet are used.
	maxCountBits = 32
)

// DefaultBits returns the prefix length of the blocks of a subnet: 64 addresses, and smaller ones
// in subnets that have room for fewer than 16 of these.
func DefaultBits(subnet netip.Prefix) int {
	length := subnet.Addr().BitLen()
	return min(max(length-6, subnet.Bits()+4), length-minHostBits)
}

// ValidBits returns an error if blocks cannot have this prefix length in the subnet.
func ValidBits(subnet netip.Prefix, bits int) error {
	length := subnet.Addr().BitLen()
	least, most := max(subnet.Bits(), length-maxHostBits), length-minHostBits
	if bits < least || bits > most {
		return fmt.Errorf("block size %d: want a prefix length from %d to %d in subnet %s", bits, least, most, subnet)
	}
	return nil
}

// Check returns an error if the block sizes of a network's record are impossible. Any node can write
// records.
func Check(n record.Network) error {
	if len(n.BlockBits) != len(n.Spec.Subnets) {
		return fmt.Errorf("it has %d subnets and %d block sizes", len(n.Spec.Subnets), len(n.BlockBits))
	}
	for i, sub := range n.Spec.Subnets {
		if !sub.Prefix.IsValid() {
			return fmt.Errorf("subnet %d is no address range", i+1)
		}
		if err := ValidBits(sub.Prefix, n.BlockBits[i]); err != nil {
			return err
		}
	}
	return nil
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
