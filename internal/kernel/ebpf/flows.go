package ebpf

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Flow is one translated flow: the addresses that the client uses, and those that the
// endpoint sees.
type Flow struct {
	UDP bool
	// Host is the address that the client dialled, Client the client's.
	Host, Client netip.AddrPort
	// Endpoint is the translated destination, and Seen the client's address that the
	// endpoint sees.
	Endpoint, Seen netip.AddrPort
	// Acknowledged is the last sequence number that each side has acknowledged: the
	// client, the endpoint. It is exact if the mapping asks for a reset, and up to 256
	// KiB behind if not.
	Acknowledged [2]uint32
	// Real is the slot of the flow's real server, 0 for a port mapping.
	Real uint32
	// Ifindex is the link on which the client's last packet arrived.
	Ifindex uint32
	// Closing says that one side of a TCP connection has closed or reset it. Stale says
	// that the programs delete the flow at its next packet.
	Closing, Stale bool
	// Outbound says that the endpoint has opened the flow, to a host outside: that is
	// Client, and Host is the address that it sees.
	Outbound bool
	key      bpf.FairleadFlowKey
	// link is the host's link to the endpoint.
	link uint32
}

// batch is the number of flows that one system call reads.
const batch = 4096

// FlowMaps are the maps of flows, with the aliases and connections that belong to
// them.
type FlowMaps map[string]*ebpf.Map

// Flows returns the flows of the data path.
func (p *Datapath) Flows() FlowMaps { return p.maps }

// Each calls fn for each flow in the maps, including stale ones.
func (m FlowMaps) Each(fn func(Flow)) error {
	return m.eachEntry(func(udp, stale bool, k bpf.FairleadFlowKey, v bpf.FairleadFlow) {
		fn(flowOf(udp, stale, k, v))
	})
}

func flowOf(udp, stale bool, k bpf.FairleadFlowKey, v bpf.FairleadFlow) Flow {
	return Flow{UDP: udp, key: k, Acknowledged: v.Ack, Real: realOf(v.Slot), Ifindex: v.Ifindex,
		Outbound: v.Flags&flowOutbound != 0, link: v.Link,
		Closing: !udp && (isClosing(v) || v.Flags&flowRst != 0), Stale: stale,
		Host: at(v.Host, v.HostPort), Client: at(v.Client, v.ClientPort),
		Endpoint: at(k.Endpoint, k.EndpointPort), Seen: at(k.Client, k.ClientPort)}
}

// eachEntry calls fn for each entry of the maps of flows.
func (m FlowMaps) eachEntry(fn func(udp, stale bool, key bpf.FairleadFlowKey, f bpf.FairleadFlow)) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	for name, udp := range map[string]bool{bpf.FairleadMapFlFlowsTcp: false, bpf.FairleadMapFlYoungFlows: false,
		bpf.FairleadMapFlFlowsUdp: true} {
		if m[name] == nil {
			continue // a read-only view may lack the map
		}
		err := each(m[name], func(k bpf.FairleadFlowKey, v bpf.FairleadFlow) {
			fn(udp, now.Nano()-int64(v.Seen) > int64(idleLimit(udp, v)), k, v)
		})
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
	}
	return nil
}

// realOf returns the slot of a real server, 0 for a mapping's slot.
func realOf(slot uint32) uint32 {
	if slot&realBit == 0 {
		return 0
	}
	return slot &^ realBit
}

// each reads a map in batches.
func each[K, V any](m *ebpf.Map, fn func(K, V)) error {
	size := min(batch, m.MaxEntries())
	keys, values := make([]K, size), make([]V, size)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			fn(keys[i], values[i])
		}
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return nil
		case err != nil:
			return err
		}
	}
}

func at(a bpf.FairleadAddress, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(Netip(a), bits.ReverseBytes16(port))
}

// Forget deletes flows, and the aliases of their clients. A flow that has ended
// meanwhile is no error.
func (m FlowMaps) Forget(flows []Flow) error {
	for _, f := range flows {
		names := []string{bpf.FairleadMapFlFlowsTcp, bpf.FairleadMapFlYoungFlows}
		if f.UDP {
			names = []string{bpf.FairleadMapFlFlowsUdp}
		}
		for _, name := range names {
			if err := m[name].Delete(f.key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("forget flow %s to %s: %w", f.Client, f.Host, err)
			}
		}
		forget := m.forgetAlias
		switch {
		case f.Real != 0:
			forget = m.forgetConn
		case f.Outbound:
			forget = func(f Flow) error { return m.release(f.entry()) }
		}
		if err := forget(f); err != nil {
			return err
		}
	}
	return nil
}

// forgetAlias deletes the alias of the flow's client.
func (m FlowMaps) forgetAlias(f Flow) error {
	if f.Seen == f.Client {
		return nil
	}
	name := bpf.FairleadAliasKey{
		Client: Address(f.Client.Addr()), ClientPort: bits.ReverseBytes16(f.Client.Port()),
		Host: Address(f.Host.Addr()), HostPort: bits.ReverseBytes16(f.Host.Port()), Class: f.key.Class,
	}
	if f.Client.Addr().Is6() && f.Client.Addr().IsLinkLocalUnicast() { // as scoped in bpf/include/track.h
		name.Class |= f.Ifindex << 2
	}
	if err := m[bpf.FairleadMapFlAliases].Delete(name); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget the alias of %s: %w", f.Client, err)
	}
	return nil
}
