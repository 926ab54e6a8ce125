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

// Sources has the addresses and links from which packets are accepted.
type Sources struct {
	maps map[string]*ebpf.Map
	// loose accepts a client on any uplink if the route back uses any uplink.
	loose bool
}

// Sources returns the source checks of the data path.
func (p *Datapath) Sources() Sources { return Sources{p.maps, p.opt.LooseSources} }

// SetEndpoint writes the addresses of the sandbox behind an interface, at most one per
// family. Packets on the interface with another source create no flow.
func (s Sources) SetEndpoint(ifindex int, addrs []netip.Addr) error {
	var e bpf.FairleadEndpoint
	for _, a := range addrs {
		if a.Is4() {
			e.V4 = Address(a)
		} else {
			e.V6 = Address(a)
		}
	}
	if err := s.maps[bpf.FairleadMapFlEndpoints].Put(uint32(ifindex), e); err != nil {
		return fmt.Errorf("set the addresses behind interface %d: %w", ifindex, err)
	}
	return nil
}

// Endpoint returns the addresses that SetEndpoint wrote, IPv4 first.
func (s Sources) Endpoint(ifindex int) ([]netip.Addr, error) {
	var e bpf.FairleadEndpoint
	err := s.maps[bpf.FairleadMapFlEndpoints].Lookup(uint32(ifindex), &e)
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

// setUplink adds an interface to the map of uplinks. It keeps the number that
// SetMultipath wrote. The calling thread must be in the interface's network namespace.
func (s Sources) setUplink(ifindex int) error {
	multipath, err := s.Multipath(ifindex)
	if err != nil {
		return err
	}
	u := bpf.FairleadUplinkCheck{Multipath: multipath}
	if s.loose {
		u.Flags = uplinkLoose
	}
	l, err := netlink.LinkByIndex(ifindex)
	if err == nil && (l.Type() == "macvlan" || l.Type() == "ipvlan") {
		u.Parent = uint32(l.Attrs().ParentIndex)
	}
	if err := s.maps[bpf.FairleadMapFlUplinks].Put(uint32(ifindex), u); err != nil {
		return fmt.Errorf("set uplink %d: %w", ifindex, err)
	}
	return nil
}

// Multipath returns the number that SetMultipath wrote for an uplink, 0 if there is
// none.
func (s Sources) Multipath(ifindex int) (uint32, error) {
	var u bpf.FairleadUplinkCheck
	err := s.maps[bpf.FairleadMapFlUplinks].Lookup(uint32(ifindex), &u)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, fmt.Errorf("read the source check of uplink %d: %w", ifindex, err)
	}
	return u.Multipath, nil
}

// SetMultipath writes the number of the set of uplinks that share multipath routes with
// an uplink. 0 means that no such route uses the uplink. The programs accept a client on
// any uplink of the set if one of them has the route back to the client.
func (s Sources) SetMultipath(ifindex int, set uint32) error {
	var u bpf.FairleadUplinkCheck
	m := s.maps[bpf.FairleadMapFlUplinks]
	err := m.Lookup(uint32(ifindex), &u)
	if err == nil && u.Multipath != set {
		u.Multipath = set
		err = m.Put(uint32(ifindex), u)
	}
	if err != nil {
		return fmt.Errorf("set the multipath routes of uplink %d: %w", ifindex, err)
	}
	return nil
}

// adoptUplinks calls setUplink for the uplinks of an earlier process, which may have
// been of another version or had other options. The calling thread must be in the host's
// network namespace.
func (p *Datapath) adoptUplinks() error {
	found, err := p.LinksOf(Uplink)
	errs := []error{err}
	for ifindex := range found {
		errs = append(errs, p.Sources().setUplink(ifindex))
	}
	return errors.Join(errs...)
}

// forget deletes the source addresses or flags of an interface.
func (s Sources) forget(program string, ifindex int) error {
	name := bpf.FairleadMapFlUplinks
	switch program {
	case Sandbox:
		name = bpf.FairleadMapFlEndpoints
	case SandboxOut:
		name = bpf.FairleadMapFlOutboundLinks
	case Uplink:
	default:
		return nil
	}
	err := s.maps[name].Delete(uint32(ifindex))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget the sources of interface %d: %w", ifindex, err)
	}
	return nil
}

// SetAddresses writes the host's own addresses for the programs.
func (s Sources) SetAddresses(local []netip.Addr) error {
	m := s.maps[bpf.FairleadMapFlAddresses]
	stale := map[bpf.FairleadAddress]bool{}
	var key bpf.FairleadAddress
	var one uint8
	for it := m.Iterate(); it.Next(&key, &one); {
		stale[key] = true
	}
	for _, a := range local {
		if a.IsLoopback() {
			continue
		}
		key := Address(a)
		if !stale[key] {
			if err := m.Put(key, uint8(1)); err != nil {
				return fmt.Errorf("set host address %s: %w", a, err)
			}
		}
		delete(stale, key)
	}
	for key := range stale {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget host address %s: %w", Netip(key), err)
		}
	}
	return nil
}
