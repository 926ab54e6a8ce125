package kernel

import (
	"fmt"
	"net/netip"

	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Flow is a connection as conntrack sees it: where its first packet went,
// and who answers.
type Flow struct {
	Proto model.Proto
	// Host is the destination that the client chose.
	Host netip.AddrPort
	// Target is the source of the answers, the DNATed destination.
	Target netip.AddrPort
}

// FlushFlows forgets the flows that match, so that their next packet meets
// the rules anew. To list them takes the kernel milliseconds, however few
// they are, because it walks its whole hash table; so it is done once for
// both address families, and not at all while the host has no flow.
func (h *Host) FlushFlows(match func(Flow) bool) error {
	if n, err := h.ReadSysctl(plan.Sysctl{Name: "net.netfilter.nf_conntrack_count"}); err == nil && n == "0" {
		return nil
	}
	handle, err := netlink.NewHandleAt(netns.NsHandle(h.ns.File().Fd()), unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("open conntrack: %w", err)
	}
	defer handle.Close()
	all, err := retry(func() ([]*netlink.ConntrackFlow, error) {
		return handle.ConntrackTableList(netlink.ConntrackTable, unix.AF_UNSPEC)
	})
	if err != nil {
		return fmt.Errorf("list conntrack: %w", err)
	}
	families := map[uint8]bool{}
	for _, f := range all {
		if flowFilter(match).MatchConntrackFlow(f) {
			families[f.FamilyType] = true
		}
	}
	for family := range families {
		_, err := retry(func() (uint, error) {
			return handle.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(family), flowFilter(match))
		})
		if err != nil {
			return fmt.Errorf("flush conntrack: %w", err)
		}
	}
	return nil
}

type flowFilter func(Flow) bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (match flowFilter) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	proto, ok := map[uint8]model.Proto{unix.IPPROTO_TCP: model.TCP, unix.IPPROTO_UDP: model.UDP}[f.Forward.Protocol]
	if !ok {
		return false
	}
	host, _ := netip.AddrFromSlice(f.Forward.DstIP)
	target, _ := netip.AddrFromSlice(f.Reverse.SrcIP)
	return match(Flow{
		Proto:  proto,
		Host:   netip.AddrPortFrom(host.Unmap(), f.Forward.DstPort),
		Target: netip.AddrPortFrom(target.Unmap(), f.Reverse.SrcPort),
	})
}
