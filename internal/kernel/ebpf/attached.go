package ebpf

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// FilterName begins the names of our tc filters.
const FilterName = filterName

// Attached returns the ids of the tcx programs of a link of the calling thread's
// network namespace; none where the kernel has no tcx.
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
