package datapath

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
)

// Outbound are the programs that translate the connections of a sandbox to hosts outside.
var Outbound = Programs[plan.Outbound]{attach: attachOutbound, detach: detachOutbound, read: readOutbound}

func attachOutbound(h *Handle, p *ebpf.Datapath, o plan.Outbound) error {
	router, err := h.rtnl.LinkByName("", o.Router)
	if err != nil {
		return err
	}
	if err := h.ns.Do(ebpf.CheckOutbound); err != nil {
		return err
	}
	return h.onLink(o.Link, func(l netlink.Link) error {
		return p.AttachOutbound(l.Attrs().Index,
			ebpf.OutboundLink{Router: router.Attrs().Index, MAC: router.Attrs().HardwareAddr})
	})
}

func detachOutbound(h *Handle, p *ebpf.Datapath, o plan.Outbound) error {
	err := h.onLink(o.Link, func(l netlink.Link) error { return p.DetachOutbound(l.Attrs().Index) })
	if nlutil.Absent(err) {
		_, err = h.linksOf(p, ebpf.SandboxOut) // forgets programs of deleted links
	}
	return err
}

func readOutbound(h *Handle, p *ebpf.Datapath, o plan.Outbound) (plan.Object, error) {
	l, err := h.rtnl.LinkByName("", o.Link)
	if err != nil {
		return nil, err
	}
	found, err := h.seenPrograms(p, ebpf.SandboxOut)
	if err != nil || !found[l.Attrs().Index] {
		return nil, err
	}
	at, ok, err := p.Outbound(l.Attrs().Index)
	if err != nil || !ok {
		return nil, err
	}
	router, err := h.rtnl.LinkByIndex("", at.Router)
	if nlutil.Absent(err) || err == nil && !slices.Equal(router.Attrs().HardwareAddr, at.MAC) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return plan.Outbound{Link: o.Link, Router: router.Attrs().Name}, nil
}

// Outbounds returns the links of sandboxes whose connections to hosts outside the programs
// translate. It is read-only.
func Outbounds(h *Handle) ([]plan.Outbound, error) {
	var found State
	err := h.WithDatapath(func(s *ebpf.ReadOnly) error { return readOutbounds(h, s, &found) })
	return found.Outbound, err
}

// readOutbounds reads the links and addresses of outbound flows.
func readOutbounds(h *Handle, s *ebpf.ReadOnly, found *State) error {
	links, sources, err := s.Outbound()
	if err != nil {
		return err
	}
	names, err := h.rtnl.LinkNames()
	if err != nil {
		return err
	}
	for ifindex, router := range links {
		o := plan.Outbound{Link: names[ifindex], Router: names[router]}
		if o.Link != "" && o.Router != "" { // they may have been deleted meanwhile
			found.Outbound = append(found.Outbound, o)
		}
	}
	slices.SortFunc(found.Outbound, func(a, b plan.Outbound) int { return strings.Compare(a.Link, b.Link) })
	found.Sources = map[string]netip.Prefix{}
	for ifindex, p := range sources {
		found.Sources[names[ifindex]] = p
	}
	return nil
}

// describeUplinks passes the address of each uplink that outbound flows may get to the
// programs.
func describeUplinks(h *Handle, p *ebpf.Datapath) error {
	uplinks, err := h.Uplinks()
	if err != nil {
		return err
	}
	ports, err := realPorts(h)
	if err != nil {
		return err
	}
	sources, err := rtnl.Primaries(h.rtnl)
	if err != nil {
		return err
	}
	outside := map[int]netip.Prefix{}
	for _, l := range uplinks {
		a := l.Attrs()
		if from, ok := sources[a.Index]; ok && !ebpf.IsBare(l) && (l.Type() != "bridge" || ports[a.Index]) {
			outside[a.Index] = from
		}
	}
	return p.Sources().SetOutboundSources(outside)
}

// realPorts returns the bridges of the host with a port to a LAN. A bridge that has only
// ports to containers or virtual machines is another engine's network, not the way
// outside: the host's firewall decides about packets to it.
func realPorts(h *Handle) (map[int]bool, error) {
	links, err := h.rtnl.ListLinks("")
	if err != nil {
		return nil, err
	}
	bridges := map[int]bool{}
	for _, l := range links {
		if a := l.Attrs(); a.MasterIndex != 0 && !rtnl.Ours(l) && !slices.Contains(virtualPorts, l.Type()) {
			bridges[a.MasterIndex] = true
		}
	}
	return bridges, nil
}

// virtualPorts are the types of links that connect containers and virtual machines to a
// bridge.
var virtualPorts = []string{"veth", "tuntap", "tun", "dummy", "netkit"}

// OutboundCounts returns the counters of outbound flows. It is safe for concurrent use.
func OutboundCounts(h *Handle) (c ebpf.OutboundCounts, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ebpfState == nil {
		return c, nil
	}
	return h.ebpfState.OutboundCounts()
}

// Exhausted returns how many outbound flows found no free port since its last result that
// was not 0. It returns such a result at most once in reportInterval. It is safe for
// concurrent use.
func Exhausted(h *Handle) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ebpfState == nil {
		h.exhausted = exhausted{}
		return 0
	}
	c, err := h.ebpfState.OutboundCounts()
	if err != nil {
		return 0 // the next call tries again
	}
	return h.exhausted.since(c.Exhausted, time.Now())
}

// reportInterval is the time between two reports that no port is free.
const reportInterval = time.Minute

// exhausted is what was reported of the flows that found no free port.
type exhausted struct {
	known    bool
	reported uint64
	at       time.Time
}

// since returns how many of all flows were not reported. The first call reports none: these
// flows are those of an earlier process.
func (e *exhausted) since(all uint64, now time.Time) uint64 {
	fresh := all - e.reported
	if !e.known || all < e.reported {
		*e = exhausted{known: true, reported: all}
		return 0
	}
	if fresh == 0 || now.Sub(e.at) < reportInterval {
		return 0
	}
	e.reported, e.at = all, now
	return fresh
}

// sweepInterval is the time between two searches for ports of outbound flows that have
// ended.
const sweepInterval = time.Minute

// sweep releases the ports of outbound flows that have ended.
type sweep struct{ last time.Time }

// check searches at most once in sweepInterval.
func (s *sweep) check(flows ebpf.FlowMaps) {
	if time.Since(s.last) < sweepInterval {
		return
	}
	s.last = time.Now()
	_ = flows.SweepOutbound() // the next check tries again
}
