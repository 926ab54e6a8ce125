package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"

	"fairlead/internal/kernel/bpf"
	"fairlead/internal/plan"

	"github.com/cilium/ebpf"
)

// SandboxOut is the program at the egress of the links of sandboxes with outbound flows
// (bpf/include/outbound.h).
const SandboxOut = bpf.FairleadProgFlSandboxOut

// The flags of outbound flows, as in bpf/include/flows.h.
const (
	flowOutbound = 1 << 15
	flowStream   = 1 << 16
)

// OutboundLink is the link of a sandbox whose connections to hosts outside the programs
// translate.
type OutboundLink struct {
	// Router is the index of the link whose packets the host routes: the bridge, or the
	// link itself. MAC is its address.
	Router int
	MAC    net.HardwareAddr
}

// CheckOutbound returns an error if the host connects from ports of outbound flows. The
// calling thread must be in the host's network namespace.
func CheckOutbound() error {
	local, err := localPorts()
	if err != nil {
		return err
	}
	if local.first >= plan.FirstHostPort && local.last <= plan.LastHostPort {
		return nil
	}
	return fmt.Errorf("the host connects from the ports %d-%d, and outbound ebpf needs %s: set "+
		"net.ipv4.ip_local_port_range to `%d %d`, or choose outbound nft", local.first, local.last, plan.OutboundPorts,
		plan.FirstHostPort, plan.LastHostPort)
}

// AttachOutbound makes the programs translate the connections of the sandbox behind an
// interface. The calling thread must be in the interface's network namespace.
func (p *Datapath) AttachOutbound(ifindex int, l OutboundLink) error {
	// The first datagrams that the kernel delivers must be noted.
	if err := p.attachLink(SandboxOut, ifindex, false); err != nil {
		return err
	}
	v := bpf.FairleadOutboundLink{Ifindex: uint32(l.Router)}
	copy(v.Mac[:], l.MAC)
	if err := p.maps[bpf.FairleadMapFlOutboundLinks].Put(uint32(ifindex), v); err != nil {
		return fmt.Errorf("translate the outbound flows of interface %d: %w", ifindex, err)
	}
	return nil
}

// DetachOutbound ends what AttachOutbound began, and the outbound flows of the interface.
func (p *Datapath) DetachOutbound(ifindex int) error {
	err := p.detachLink(SandboxOut, ifindex)
	var ended []Flow
	err = errors.Join(err, p.Flows().Each(func(f Flow) {
		if f.Outbound && f.link == uint32(ifindex) {
			ended = append(ended, f)
		}
	}))
	return errors.Join(err, p.Flows().Forget(ended))
}

// Outbound returns what AttachOutbound wrote for an interface, and false if there is
// nothing.
func (p *Datapath) Outbound(ifindex int) (OutboundLink, bool, error) {
	var v bpf.FairleadOutboundLink
	err := p.maps[bpf.FairleadMapFlOutboundLinks].Lookup(uint32(ifindex), &v)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return OutboundLink{}, false, nil
	}
	if err != nil {
		return OutboundLink{}, false, fmt.Errorf("read the outbound flows of interface %d: %w", ifindex, err)
	}
	return OutboundLink{Router: int(v.Ifindex), MAC: v.Mac[:]}, true, nil
}

// setOutbound sets the number that decides which ports outbound flows get.
func setOutbound(spec *ebpf.CollectionSpec) error {
	if err := spec.Variables[bpf.FairleadVarOutboundSecret].Set(rand.Uint32()); err != nil {
		return fmt.Errorf("set %s: %w", bpf.FairleadVarOutboundSecret, err)
	}
	return nil
}

// openOutbound opens the pinned maps of outbound flows, if the version has them.
func (s *ReadOnly) openOutbound(dir pins) error {
	for _, name := range []string{bpf.FairleadMapFlOutboundLinks, bpf.FairleadMapFlOutboundSources} {
		m, err := ebpf.LoadPinnedMap(dir.mapOf(name), nil)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("open pinned map %s: %w", name, err)
		}
		s.maps[name] = m
	}
	return nil
}

// Outbound returns the links whose outbound flows the programs translate, with the link
// that routes their packets, and the addresses of such flows by the uplink. It is empty if
// the data path is of a version that has none.
func (s *ReadOnly) Outbound() (links map[uint32]uint32, sources map[uint32]netip.Prefix, err error) {
	links, sources = map[uint32]uint32{}, map[uint32]netip.Prefix{}
	ofLinks, ofUplinks := s.maps[bpf.FairleadMapFlOutboundLinks], s.maps[bpf.FairleadMapFlOutboundSources]
	if ofLinks == nil || ofUplinks == nil {
		return links, sources, nil
	}
	var ifindex uint32
	var l bpf.FairleadOutboundLink
	it := ofLinks.Iterate()
	for it.Next(&ifindex, &l) {
		links[ifindex] = l.Ifindex
	}
	var v bpf.FairleadOutboundSource
	at := ofUplinks.Iterate()
	for at.Next(&ifindex, &v) {
		sources[ifindex] = prefixOf(v)
	}
	if err := errors.Join(it.Err(), at.Err()); err != nil {
		return nil, nil, fmt.Errorf("read the links of outbound flows: %w", err)
	}
	return links, sources, nil
}

// SetOutboundSources writes the address that outbound flows get on each uplink, with the
// network that their next hop must be in.
func (s Sources) SetOutboundSources(want map[int]netip.Prefix) error {
	m := s.maps[bpf.FairleadMapFlOutboundSources]
	have := map[uint32]bpf.FairleadOutboundSource{}
	var key uint32
	var value bpf.FairleadOutboundSource
	for it := m.Iterate(); it.Next(&key, &value); {
		have[key] = value
	}
	for ifindex, p := range want {
		v := outboundSource(p)
		if old, ok := have[uint32(ifindex)]; !ok || old != v {
			if err := m.Put(uint32(ifindex), v); err != nil {
				return fmt.Errorf("set the address of outbound flows on uplink %d: %w", ifindex, err)
			}
		}
		delete(have, uint32(ifindex))
	}
	for ifindex := range have {
		if err := m.Delete(ifindex); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget the address of outbound flows on uplink %d: %w", ifindex, err)
		}
	}
	return nil
}

func prefixOf(v bpf.FairleadOutboundSource) netip.Prefix {
	ones, _ := net.IPMask(addr4(v.Mask).AsSlice()).Size()
	return netip.PrefixFrom(addr4(v.Address), ones)
}

func outboundSource(p netip.Prefix) bpf.FairleadOutboundSource {
	return bpf.FairleadOutboundSource{Address: word(p.Addr()),
		Mask: binary.NativeEndian.Uint32(net.CIDRMask(p.Bits(), 32))}
}

// OutboundCounts are the counters of outbound flows.
type OutboundCounts struct {
	Counts
	// Exhausted counts the flows that the kernel forwards because no port was free.
	Exhausted uint64
}

// OutboundCounts returns the counters of outbound flows since the data path was created.
func (p *Datapath) OutboundCounts() (c OutboundCounts, err error) {
	for i, add := range []func(Counts){c.Add, func(o Counts) { c.Exhausted += o.Flows }} {
		var each []bpf.FairleadTotal
		if err := p.maps[bpf.FairleadMapFlOutboundTotals].Lookup(uint32(i), &each); err != nil {
			return c, fmt.Errorf("read the counters of outbound flows: %w", err)
		}
		for _, t := range each {
			add(Counts{Packets: t.Packets, Bytes: t.Bytes, Drops: t.Drops, Flows: t.Flows})
		}
	}
	return c, nil
}

// SweepOutbound deletes the locks of killed processes, the entries of outbound flows that were pushed out of their
// maps, and the outbound flows that are stale. The programs do so only if they need the port.
func (m FlowMaps) SweepOutbound() error {
	if err := m.unlockNames(); err != nil {
		return err
	}
	left := map[bpf.FairleadOutboundName]bpf.FairleadOutboundOwner{}
	err := each(m[bpf.FairleadMapFlOutbound], func(name bpf.FairleadOutboundName, owner bpf.FairleadOutboundOwner) {
		left[name] = owner
	})
	if err != nil || len(left) == 0 {
		return err
	}
	var stale []Flow
	err = m.Each(func(f Flow) {
		if !f.Outbound {
			return
		}
		if f.Stale {
			stale = append(stale, f)
		}
		name, _ := f.entry()
		delete(left, name)
	})
	if err != nil {
		return err
	}
	for name, owner := range left {
		// Each may have missed a flow that moved to another map meanwhile.
		if err := m.release(name, owner); err != nil {
			return err
		}
	}
	return m.Forget(stale)
}

// entry returns the entry of an outbound flow in fl_outbound.
func (f Flow) entry() (bpf.FairleadOutboundName, bpf.FairleadOutboundOwner) {
	return bpf.FairleadOutboundName{Client: word(f.Client.Addr()), ClientPort: swap(f.Client.Port()),
			Host: word(f.Host.Addr()), HostPort: swap(f.Host.Port()), Class: f.key.Class},
		bpf.FairleadOutboundOwner{Endpoint: word(f.Endpoint.Addr()), Port: swap(f.Endpoint.Port())}
}

// keyOf returns the key of the flow with that name and owner.
func keyOf(name bpf.FairleadOutboundName, owner bpf.FairleadOutboundOwner) bpf.FairleadFlowKey {
	return bpf.FairleadFlowKey{Endpoint: Address(addr4(owner.Endpoint)), EndpointPort: owner.Port,
		Client: Address(addr4(name.Client)), ClientPort: name.ClientPort, Class: name.Class}
}

// life is the value of the locks of names that this process takes. That of programs is 0.
var life = rand.Uint32() | 1

// release deletes the entry of an outbound flow with that owner, if the flow has ended. It
// takes the lock of the name as the programs do. If a program has it, the entry stays.
func (m FlowMaps) release(name bpf.FairleadOutboundName, owner bpf.FairleadOutboundOwner) error {
	locks := m[bpf.FairleadMapFlLockedNames]
	err := locks.Update(name, life, ebpf.UpdateNoExist)
	if errors.Is(err, ebpf.ErrKeyExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("release a port of an outbound flow: lock its name: %w", err)
	}
	return errors.Join(m.deleteName(name, owner), locks.Delete(name))
}

// unlockNames deletes the locks of processes that were killed.
func (m FlowMaps) unlockNames() error {
	var left []bpf.FairleadOutboundName
	err := each(m[bpf.FairleadMapFlLockedNames], func(name bpf.FairleadOutboundName, owner uint32) {
		if owner != 0 && owner != life {
			left = append(left, name)
		}
	})
	for _, name := range left {
		err = errors.Join(err, m[bpf.FairleadMapFlLockedNames].Delete(name))
	}
	return err
}

// deleteName does what release does. The caller has the lock of the name.
func (m FlowMaps) deleteName(name bpf.FairleadOutboundName, owner bpf.FairleadOutboundOwner) error {
	var now bpf.FairleadOutboundOwner
	err := m[bpf.FairleadMapFlOutbound].Lookup(name, &now)
	if err == nil && now == owner && !m.has(keyOf(name, owner)) {
		err = m[bpf.FairleadMapFlOutbound].Delete(name)
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("release a port of an outbound flow: %w", err)
	}
	return nil
}

// has reports whether a flow with the key exists. A flow moves from the map of half-open
// flows to that of open ones.
func (m FlowMaps) has(key bpf.FairleadFlowKey) bool {
	var f bpf.FairleadFlow
	for _, name := range []string{bpf.FairleadMapFlFlowsUdp, bpf.FairleadMapFlYoungFlows, bpf.FairleadMapFlFlowsTcp} {
		if m[name].Lookup(key, &f) == nil {
			return true
		}
	}
	return false
}
