package kernel

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Wire connects two hosts with a veth pair that has the given name on both, and
// the MTU in bytes. Neither end has Fairlead's mark: the engines of both hosts
// treat it as an uplink, like a network card.
func Wire(a, b *Host, name string, mtu int) error {
	near, err := a.links.At("")
	if err != nil {
		return err
	}
	far, err := b.links.At("")
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU = name, uint32(mtu)
	veth.PeerNamespace = netlink.NsFd(b.ns.File().Fd())
	if err := near.LinkAdd(veth); err != nil {
		return fmt.Errorf("create wire %s: %w", name, err)
	}
	for _, end := range []*netlink.Handle{near, far} {
		link, err := end.LinkByName(name)
		if err == nil {
			err = end.LinkSetUp(link)
		}
		if err != nil {
			return fmt.Errorf("set wire %s up: %w", name, err)
		}
	}
	return nil
}
