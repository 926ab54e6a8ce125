package kernel

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// hookPrograms finds eBPF programs of type BPF_PROG_TYPE_NETFILTER (Linux 6.4) at the hooks
// that outbound connections bypass. The kernel sends no messages about them, and reports no
// namespace: those of other namespaces count, too.
type hookPrograms struct {
	mu sync.Mutex
	// last is the newest link that is known, and at has the hooks of those programs. The ids of
	// links grow, so only newer links are read.
	last link.ID
	at   map[link.ID]string
}

// bypassedHooks are the hooks of netfilter that outbound connections bypass, over IPv4.
var bypassedHooks = map[link.NetfilterInetHook]string{link.NetfilterInetPreRouting: "prerouting",
	link.NetfilterInetForward: "forward", link.NetfilterInetPostRouting: "postrouting"}

// find describes one of the programs; empty if there is none.
func (p *hookPrograms) find() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.at {
		if l, err := link.NewFromID(id); err == nil {
			_ = l.Close()
		} else if errors.Is(err, os.ErrNotExist) {
			delete(p.at, id)
		}
	}
	if p.at == nil {
		p.at = map[link.ID]string{}
	}
	all := link.Iterator{ID: p.last}
	defer func() { all.Close() }()
	for all.Next() {
		p.last = all.ID
		// Links of some other types have no information.
		if info, err := all.Link.Info(); err == nil && info.Netfilter() != nil {
			n := info.Netfilter()
			if hook := bypassedHooks[n.Hook]; hook != "" && n.ProtocolFamily == link.NetfilterProtoIPv4 {
				p.at[all.ID] = hook
			}
		}
	}
	// Older kernels do not list links. A link that is being created is read the next time.
	if err := all.Err(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EAGAIN) {
		return fmt.Sprintf("the eBPF programs at the hooks of netfilter could not be listed: %v", err)
	}
	if len(p.at) == 0 {
		return ""
	}
	id := slices.Min(slices.Collect(maps.Keys(p.at)))
	return fmt.Sprintf("an eBPF program at the hook %s of netfilter may decide (link %d: see `bpftool link`)", p.at[id], id)
}
