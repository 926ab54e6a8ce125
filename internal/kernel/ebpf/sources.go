package ebpf

import (
	"errors"
	"fmt"
	"net/netip"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
)

// uplinkLoose is a flag of an uplink, as in bpf/include/maps.h.
const uplinkLoose = 1 << 0

// SetEndpoint tells the programs the addresses of the sandbox behind an
// interface, at most one of each family: packets that come by it with another
// source begin no flow.
func (p *Datapath) SetEndpoint(ifindex int, addrs []netip.Addr) error {
	var e bpf.FairleadEndpoint
	for _, a := range addrs {
		if a.Is4() {
			e.V4 = Address(a)
		} else {
			e.V6 = Address(a)
		}
	}
	if err := p.maps[bpf.FairleadMapFlEndpoints].Put(uint32(ifindex), e); err != nil {
		return fmt.Errorf("note the addresses behind interface %d: %w", ifindex, err)
	}
	return nil
}

// Endpoint returns the addresses that SetEndpoint has noted, IPv4 first.
func (p *Datapath) Endpoint(ifindex int) ([]netip.Addr, error) {
	var e bpf.FairleadEndpoint
	err := p.maps[bpf.FairleadMapFlEndpoints].Lookup(uint32(ifindex), &e)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the addresses behind interface %d: %w", ifindex, err)
	}
	var addrs []netip.Addr
	for _, a := range []bpf.FairleadAddress{e.V4, e.V6} {
		if a != (bpf.FairleadAddress{}) {
			addrs = append(addrs, Netip(a))
		}
	}
	return addrs, nil
}

// setUplink notes in the programs' map that an interface is an uplink. It keeps
// what SetMultipath has noted. The calling thread must be in its network namespace.
func (p *Datapath) setUplink(ifindex int) error {
	multipath, err := p.Multipath(ifindex)
	if err != nil {
		return err
	}
	u := bpf.FairleadUplinkCheck{Multipath: multipath}
	if p.opt.LooseSources {
		u.Flags = uplinkLoose
	}
	l, err := netlink.LinkByIndex(ifindex)
	if err == nil && (l.Type() == "macvlan" || l.Type() == "ipvlan") {
		u.Parent = uint32(l.Attrs().ParentIndex)
	}
	if err := p.maps[bpf.FairleadMapFlUplinks].Put(uint32(ifindex), u); err != nil {
		return fmt.Errorf("note uplink %d: %w", ifindex, err)
	}
	return nil
}

// Multipath returns what SetMultipath has noted of an uplink; 0 if nothing.
func (p *Datapath) Multipath(ifindex int) (uint32, error) {
	var u bpf.FairleadUplinkCheck
	err := p.maps[bpf.FairleadMapFlUplinks].Lookup(uint32(ifindex), &u)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, fmt.Errorf("read the source check of uplink %d: %w", ifindex, err)
	}
	return u.Multipath, nil
}

// SetMultipath notes the set of uplinks that share multipath routes with an
// uplink, by a number of the set other than 0. 0 says that no such route has the
// uplink. The programs accept a client by any uplink of the set that has the route
// back to it.
func (p *Datapath) SetMultipath(ifindex int, set uint32) error {
	var u bpf.FairleadUplinkCheck
	m := p.maps[bpf.FairleadMapFlUplinks]
	err := m.Lookup(uint32(ifindex), &u)
	if err == nil && u.Multipath != set {
		u.Multipath = set
		err = m.Put(uint32(ifindex), u)
	}
	if err != nil {
		return fmt.Errorf("note the multipath routes of uplink %d: %w", ifindex, err)
	}
	return nil
}

// adoptUplinks does that for those of an earlier process, which may have been of
// another version or had other options. The calling thread must be in the host's
// network namespace.
func (p *Datapath) adoptUplinks() error {
	found, err := p.LinksOf(Uplink)
	errs := []error{err}
	for ifindex := range found {
		errs = append(errs, p.setUplink(ifindex))
	}
	return errors.Join(errs...)
}

// forgetSources removes what the programs know of an interface's sources.
func (p *Datapath) forgetSources(program string, ifindex int) error {
	name := bpf.FairleadMapFlUplinks
	switch program {
	case Sandbox:
		name = bpf.FairleadMapFlEndpoints
	case Uplink:
	default:
		return nil
	}
	err := p.maps[name].Delete(uint32(ifindex))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget the sources of interface %d: %w", ifindex, err)
	}
	return nil
}
