package tunnel

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/link"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addrGenNone keeps a port from generating a link-local IPv6 address, which it
// would announce through the tunnel (IN6_ADDR_GEN_MODE_NONE, linux/if_link.h).
const addrGenNone = 1

// SetTunnel creates the VXLAN link or changes Fairlead's existing one. If a link
// of another program has the name, or the VNI and port, it returns an error and
// leaves that link unchanged.
func (h *Handle) SetTunnel(want plan.Tunnel) error {
	handle, err := h.At("")
	if err != nil {
		return err
	}
	have, err := link.Managed(handle, "", want.Name,
		func(have netlink.Link) bool { return want.Adjusts(h.tunnelOf(handle, have, want)) },
		func() (netlink.Link, error) { return h.addTunnel(handle, want) })
	if err != nil {
		return err
	}
	return h.adjustTunnel(handle, have, want)
}

// addTunnel creates the link.
func (h *Handle) addTunnel(handle *netlink.Handle, want plan.Tunnel) (netlink.Link, error) {
	attrs, err := link.NewAttrs(want.Name, want.MTU, want.MAC)
	if err != nil {
		return nil, err
	}
	v := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: int(want.VNI), Port: int(want.Port), Learning: want.Learning,
		UDPCSum: true}
	switch {
	case !want.Local.IsUnspecified():
		v.SrcAddr = want.Local.AsSlice()
	case want.Local.Is6():
		v.Group = want.Local.AsSlice() // sets the address family
	}
	if want.Group.IsValid() {
		v.Group = want.Group.AsSlice()
	}
	if want.Underlay != "" {
		under, err := handle.LinkByName(want.Underlay)
		if err != nil {
			return nil, fmt.Errorf("find underlay %s: %w", want.Underlay, err)
		}
		v.VtepDevIndex = under.Attrs().Index
	}
	err = link.AddMarked(handle, v, want.Alias(), 0)
	if errors.Is(err, unix.EEXIST) {
		err = h.clash(handle, want)
	}
	return v, err
}

// clash returns an error that names the VXLAN link which already has the VNI and
// port.
func (h *Handle) clash(handle *netlink.Handle, want plan.Tunnel) error {
	links, err := nlutil.Retry(handle.LinkList)
	if err != nil {
		return err
	}
	for _, l := range links {
		v, is := l.(*netlink.Vxlan)
		if !is || v.VxlanId != int(want.VNI) || v.Port != int(want.Port) {
			continue
		}
		owner := "which is not Fairlead's"
		if rtnl.Ours(l) {
			owner = "of network " + strings.TrimPrefix(v.Alias, plan.Mark+":")
		}
		return fmt.Errorf("link %s, %s, already has VNI %d on UDP port %d: give the overlay another vni or port, on all hosts",
			v.Name, owner, want.VNI, want.Port)
	}
	return unix.EEXIST
}

func (h *Handle) adjustTunnel(handle *netlink.Handle, have netlink.Link, want plan.Tunnel) error {
	if err := link.AdjustEnd(handle, have, want.MTU, want.MAC); err != nil {
		return err
	}
	if err := handle.LinkSetIP6AddrGenMode(have, addrGenNone); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("disable IPv6 address generation: %w", err)
	}
	if err := h.links.SetLinkSettings(want); err != nil {
		return err
	}
	if err := link.AdjustMaster(handle, have, plan.Link{Master: want.Master}); err != nil {
		return err
	}
	if err := handle.LinkSetBrNeighSuppress(have, true); err != nil {
		return fmt.Errorf("suppress neighbour solicitations: %w", err)
	}
	return portTaken(want.Port, handle.LinkSetUp(have))
}

// ReadTunnel returns the VXLAN link with the properties that the kernel has. It
// returns nil if the link is missing, not Fairlead's or down, or does not suppress
// neighbour solicitations.
func (h *Handle) ReadTunnel(want plan.Tunnel) (plan.Object, error) {
	handle, link, err := h.Link("", want.Name)
	if err != nil {
		return nil, err
	}
	if _, is := link.(*netlink.Vxlan); !is || !rtnl.IsUp(link) || !rtnl.Ours(link) {
		return nil, nil
	}
	if port, err := handle.LinkGetProtinfo(link); err != nil || !port.NeighSuppress {
		return nil, nil
	}
	found := h.tunnelOf(handle, link, want)
	found.IPv6, err = h.ReadIPv6(want, want.IPv6)
	return found, err
}

// tunnelOf returns the plan object for a link; the zero value if it is not a VXLAN
// link. The kernel does not report the family of a link without addresses: it is
// taken from want.
func (h *Handle) tunnelOf(handle *netlink.Handle, link netlink.Link, want plan.Tunnel) plan.Tunnel {
	v, is := link.(*netlink.Vxlan)
	if !is {
		return plan.Tunnel{}
	}
	t := plan.Tunnel{Name: v.Name, VNI: uint32(v.VxlanId), Port: uint16(v.Port), Learning: v.Learning, MTU: v.MTU,
		MAC:   v.HardwareAddr.String(),
		Owner: strings.TrimPrefix(v.Alias, plan.Mark+":"), Local: netip.IPv4Unspecified()}
	if want.Local.Is6() {
		t.Local = netip.IPv6Unspecified()
	}
	if local, ok := netip.AddrFromSlice(v.SrcAddr); ok {
		t.Local = local.Unmap()
	}
	if group, ok := netip.AddrFromSlice(v.Group); ok && !group.Unmap().IsUnspecified() {
		t.Group = group.Unmap()
	}
	if under, err := handle.LinkByIndex(v.VtepDevIndex); v.VtepDevIndex != 0 && err == nil {
		t.Underlay = under.Attrs().Name
	}
	t.Master, _ = h.ReadPort("", link)
	return t
}

// LeftoverParts returns the entries and peers of Fairlead's link that are in no
// plan. A link that was deleted meanwhile, for example together with its underlay, has
// none.
func (h *Handle) LeftoverParts(link netlink.Link, known map[string]bool) (parts plan.Plan, err error) {
	switch l := link.(type) {
	case *netlink.Vxlan:
		parts, err = h.leftoverEntries(l, known)
	case *netlink.Wireguard:
		parts, err = h.leftoverWireGuardPeers(l.Name, known)
	}
	if nlutil.Absent(err) {
		return nil, nil
	}
	return parts, err
}
