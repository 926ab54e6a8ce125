package kernel

import (
	"fmt"
	"net"
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
	Proto  model.Proto
	Client netip.AddrPort
	// Host is the destination that the client chose.
	Host netip.AddrPort
	// Target is the source of the answers, the DNATed destination.
	Target netip.AddrPort
	// Over says that it is a TCP connection that has ended, of which conntrack
	// remembers for a while that it was; Open that it is one that both ends know.
	Over, Open bool
}

// Ends are a connection's client and what it has dialled.
type Ends struct{ Client, Host netip.AddrPort }

// Ends returns the ends of the flow as its client knows them.
func (f Flow) Ends() Ends { return Ends{f.Client, f.Host} }

// FlushFlows forgets the flows that match, so that their next packet meets
// the rules anew, and returns them. To list them takes the kernel milliseconds, however few
// they are, because it walks its whole hash table; so it is done once for
// both address families, and not at all while the host has no flow.
func (h *Host) FlushFlows(match func(Flow) bool) ([]Flow, error) {
	if n, err := h.ReadSysctl(plan.Sysctl{Name: "net.netfilter.nf_conntrack_count"}); err == nil && n == "0" {
		return nil, nil
	}
	handle, err := netlink.NewHandleAt(netns.NsHandle(h.ns.File().Fd()), unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open conntrack: %w", err)
	}
	defer handle.Close()
	all, err := retry(func() ([]*netlink.ConntrackFlow, error) {
		return handle.ConntrackTableList(netlink.ConntrackTable, unix.AF_UNSPEC)
	})
	if err != nil {
		return nil, fmt.Errorf("list conntrack: %w", err)
	}
	var flushed []Flow
	families := map[uint8]bool{}
	for _, f := range all {
		if flow, ok := flowOf(f); ok && match(flow) {
			families[f.FamilyType] = true
			flushed = append(flushed, flow)
		}
	}
	for family := range families {
		_, err := retry(func() (uint, error) {
			return handle.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(family), flowFilter(match))
		})
		if err != nil {
			return nil, fmt.Errorf("flush conntrack: %w", err)
		}
	}
	return flushed, nil
}

type flowFilter func(Flow) bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (match flowFilter) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	flow, ok := flowOf(f)
	return ok && match(flow)
}

// flowOf reads a flow, and reports whether it is TCP or UDP.
func flowOf(f *netlink.ConntrackFlow) (Flow, bool) {
	proto, ok := map[uint8]model.Proto{unix.IPPROTO_TCP: model.TCP, unix.IPPROTO_UDP: model.UDP}[f.Forward.Protocol]
	at := func(ip net.IP, port uint16) netip.AddrPort { return netip.AddrPortFrom(toAddr(ip), port) }
	tcp, _ := f.ProtoInfo.(*netlink.ProtoInfoTCP)
	return Flow{
		Proto:  proto,
		Client: at(f.Forward.SrcIP, f.Forward.SrcPort),
		Host:   at(f.Forward.DstIP, f.Forward.DstPort),
		Target: at(f.Reverse.SrcIP, f.Reverse.SrcPort),
		Over:   tcp != nil && tcp.State >= stateTimeWait,
		Open:   tcp != nil && tcp.State >= stateEstablished && tcp.State < stateTimeWait,
	}, ok
}
