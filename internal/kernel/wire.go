package kernel

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Wire joins two hosts by a veth pair of that name on both, with the MTU in
// bytes. Neither end carries our mark: to the engines of both hosts it is a
// foreign link, as a network card is.
func Wire(a, b *Host, name string, mtu int) error {
	near, err := a.at("")
	if err != nil {
		return err
	}
	far, err := b.at("")
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU = name, uint32(mtu)
	veth.PeerNamespace = netlink.NsFd(b.ns.File().Fd())
	if err := near.LinkAdd(veth); err != nil {
		return fmt.Errorf("make wire %s: %w", name, err)
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
