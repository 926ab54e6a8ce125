package kernel

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

func probeMacvlan(h *Host) error {
	return h.trySubLink("macvlan", "macvlan", func(a netlink.LinkAttrs) netlink.Link {
		return &netlink.Macvlan{LinkAttrs: a, Mode: netlink.MACVLAN_MODE_BRIDGE}
	})
}

func probeIPvlan(h *Host) error {
	return h.trySubLink("ipvlan", "ipvlan", func(a netlink.LinkAttrs) netlink.Link {
		return &netlink.IPVlan{LinkAttrs: a, Mode: netlink.IPVLAN_MODE_L2}
	})
}

func probeVLAN(h *Host) error {
	return h.trySubLink("vlan", "8021q", func(a netlink.LinkAttrs) netlink.Link {
		return &netlink.Vlan{LinkAttrs: a, VlanId: 1, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
	})
}

// trySubLink creates a sub-link on a new veth link.
func (h *Host) trySubLink(kind, module string, subLink func(netlink.LinkAttrs) netlink.Link) error {
	handle, err := h.links.At("")
	if err != nil {
		return err
	}
	parent := netlink.NewLinkAttrs()
	parent.Name = "on-" + kind
	veth := &netlink.Veth{LinkAttrs: parent, PeerName: "off-" + kind}
	if err := handle.LinkAdd(veth); err != nil {
		return fmt.Errorf("%s cannot be tested without a veth link (%w): load or build in the module veth", kind, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = "probe-"+kind, veth.Attrs().Index
	if err := handle.LinkAdd(subLink(attrs)); err != nil {
		return fmt.Errorf("the kernel cannot create a %s link (%w): load or build in the module %s", kind, err, module)
	}
	return handle.LinkDel(veth) // this deletes the sub-link too
}
