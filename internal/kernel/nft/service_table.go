package nft

import (
	"fmt"

	"fairlead/internal/plan"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
)

// dropNewTable deletes the table if this transaction has created it.
func (h *Handle) dropNewTable(made bool) error {
	if !made {
		return nil
	}
	b := h.begin()
	b.dropTable(serviceTable().Table)
	return b.commit()
}

// families are the suffixes of the shared maps, with the length of their addresses in bytes.
var families = []struct {
	suffix  string
	addrLen uint32
}{{"4", 4}, {"6", 16}}

// addressType returns the type of the addresses of the service's real servers.
func addressType(s plan.NFTService) nftables.SetDatatype {
	if s.Is4() {
		return nftables.TypeIPAddr
	}
	return nftables.TypeIP6Addr
}

// clientsSet returns the map of clients. It has no size: a map that rules write
// to then has room for 65,535 elements. For a stated size the kernel would
// allocate the memory at once.
func clientsSet(s plan.NFTService) *nftables.Set {
	set := &nftables.Set{Table: serviceTable().Table, Name: s.Clients(), IsMap: true, KeyType: addressType(s),
		DataType: realType(s), Dynamic: true, HasTimeout: true}
	if s.ClientsPort() != 0 {
		set.DataType = addressType(s)
	}
	return set
}

// realsSet returns the service's map of buckets to real servers.
func realsSet(s plan.NFTService) *nftables.Set {
	return &nftables.Set{Table: serviceTable().Table, Name: s.Reals(), IsMap: true, KeyType: nftables.TypeInteger,
		KeyByteOrder: binaryutil.NativeEndian,
		DataType:     realType(s), Size: uint32(len(s.Ring))}
}

func realType(s plan.NFTService) nftables.SetDatatype {
	if s.KeepsPort() {
		return addressType(s)
	}
	return nftables.MustConcatSetType(addressType(s), nftables.TypeInetService)
}

// serviceComment returns the comment of the rules in a service's chain: the mark,
// and the settings that the rules depend on.
func serviceComment(s plan.NFTService) string {
	return fmt.Sprintf("%s: %s %s %d %s", plan.Mark, s.Proto, s.Scheduler, len(s.Ring), s.Persistence)
}
