package topology

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"
)

// LinkBytes returns the bytes that a link of the server host has received and sent,
// added up. In a world without server host it is the client host's link.
func (w *World) LinkBytes(link string) (uint64, error) {
	if w.server == nil {
		return w.client.Net().LinkBytes("", link)
	}
	return w.server.Net().LinkBytes("", link)
}

// SandboxBytes returns the bytes that a link in the sandbox of that name, which must
// exist, has received and sent, added up.
func (w *World) SandboxBytes(sandbox, link string) (uint64, error) {
	return w.server.Net().LinkBytes(w.sandboxes[sandbox].Path(), link)
}

// Tracked returns the number of flows in the server host's conntrack table. Each
// namespace has its own table, so there are none unless a rule there uses
// connection tracking.
func (w *World) Tracked() (int, error) {
	text, err := w.server.Net().ReadSysctl(plan.Sysctl{Name: "net.netfilter.nf_conntrack_count"})
	if errors.Is(err, rtnl.ErrNoSetting) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("count flows: %w", err)
	}
	return strconv.Atoi(text)
}

// FlushTracked deletes all flows from the server host's conntrack table.
func (w *World) FlushTracked() error {
	if n, err := w.Tracked(); err != nil || n == 0 {
		return err
	}
	_, err := w.server.Conntrack().Flush(func(conntrack.Flow) bool { return true })
	return err
}

// Listens reports whether a process of the server host listens on the TCP port of an
// address.
func (w *World) Listens(at netip.AddrPort) (bool, error) { return w.server.Sockets().ListensAt(at) }

// EBPFBytes returns the bytes that the server host's eBPF programs have
// redirected. The counters of the links that they bypass do not include them.
func (w *World) EBPFBytes() (uint64, error) {
	_, bytes, err := w.usesEBPF.EBPF().TranslatedTraffic()
	if err != nil {
		return 0, err
	}
	services, err := w.usesEBPF.EBPF().BalancerCounts()
	for _, reals := range services {
		for _, n := range reals {
			bytes += n.Bytes[ebpf.Inward] + n.Bytes[ebpf.Outward]
		}
	}
	return bytes, err
}

// OutboundBytes returns the bytes of the connections to other hosts that the server host's
// eBPF programs have translated.
func (w *World) OutboundBytes() (uint64, error) {
	c, err := datapath.OutboundCounts(w.usesEBPF.EBPF())
	return c.Bytes[ebpf.Inward] + c.Bytes[ebpf.Outward], err
}

// EBPFFlows returns the number of flows in the maps of the server host's eBPF
// programs.
func (w *World) EBPFFlows() (int, error) {
	n := 0
	err := w.usesEBPF.EBPF().Flows(func(ebpf.Flow) { n++ })
	return n, err
}

// FlushEBPFFlows deletes all flows from these maps.
func (w *World) FlushEBPFFlows() error { return w.usesEBPF.EBPF().ForgetFlows() }
