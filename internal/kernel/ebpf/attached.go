package ebpf

import (
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
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

// SocketFilters returns the programs that filter the packets of sockets of a cgroup v2 directory (cgroup_skb), in the
// form `NAME (id ID)`: those of the directory and of its parents. It needs CAP_SYS_ADMIN or CAP_NET_ADMIN with CAP_BPF.
func SocketFilters(dir *os.File) ([]string, error) {
	var all []string
	for _, attach := range []ebpf.AttachType{ebpf.AttachCGroupInetIngress, ebpf.AttachCGroupInetEgress} {
		found, err := link.QueryPrograms(link.QueryOptions{Target: int(dir.Fd()), Attach: attach,
			QueryFlags: unix.BPF_F_QUERY_EFFECTIVE})
		if err != nil {
			return nil, fmt.Errorf("list the programs at %s: %w", dir.Name(), err)
		}
		for _, p := range found.Programs {
			if text := programText(p.ID); !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return all, nil
}

// programText returns the name and the id of a program; only the id if it has no name or was removed.
func programText(id ebpf.ProgramID) string {
	name := "a program"
	if p, err := ebpf.NewProgramFromID(id); err == nil {
		if info, err := p.Info(); err == nil && info.Name != "" {
			name = info.Name
		}
		p.Close()
	}
	return fmt.Sprintf("%s (id %d)", name, id)
}
