package kernel

import (
	"fmt"
	"net/netip"

	"fairlead/internal/model"

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

// FlushFlows forgets the flows of one address family (IPv4 when v4) that
// match, so that their next packet meets the rules anew.
func (h *Host) FlushFlows(v4 bool, match func(Flow) bool) error {
	handle, err := netlink.NewHandleAt(netns.NsHandle(h.ns.File().Fd()), unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("open conntrack: %w", err)
	}
	defer handle.Close()
	family := netlink.InetFamily(unix.AF_INET6)
	if v4 {
		family = unix.AF_INET
	}
	_, err = retry(func() (uint, error) {
		return handle.ConntrackDeleteFilters(netlink.ConntrackTable, family, flowFilter(match))
	})
	if err != nil {
		return fmt.Errorf("flush conntrack: %w", err)
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
