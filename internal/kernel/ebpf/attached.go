package ebpf

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// FilterName is the prefix of the names of Fairlead's tc filters.
const FilterName = filterName

// Attached returns the ids of the tcx programs of a link in the calling thread's network
// namespace. It returns none on kernels without tcx.
func Attached(ifindex int, egress bool) []uint32 {
	attach := ebpf.AttachTCXIngress
	if egress {
		attach = ebpf.AttachTCXEgress
	}
	found, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: attach})
	if err != nil {
		return nil
	}
	var ids []uint32
	for _, p := range found.Programs {
		ids = append(ids, uint32(p.ID))
	}
	return ids
}
