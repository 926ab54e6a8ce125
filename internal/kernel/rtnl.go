package kernel

import (
	"net"

	"github.com/vishvananda/netlink"
)

func (h *Host) link(netns, name string) (*netlink.Handle, netlink.Link, error) {
	handle, err := h.at(netns)
	if err != nil {
		return nil, nil, err
	}
	link, err := handle.LinkByName(name)
	return handle, link, err
}

func linkUp(handle *netlink.Handle, name string) error {
	link, err := handle.LinkByName(name)
	if err != nil {
		return err
	}
	return handle.LinkSetUp(link)
}

func parseMAC(s string) (net.HardwareAddr, error) {
	if s == "" {
		return nil, nil
	}
	return net.ParseMAC(s)
}
