package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ifaProto is IFA_PROTO of linux/if_addr.h (Linux 5.18); older kernels ignore it.
const ifaProto = 11

// SetVirtual adds the address to the link and announces it to the neighbours.
func (h *Handle) SetVirtual(v plan.VirtualAddress) error {
	link, err := h.LinkByName("", v.Link)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return fmt.Errorf("%w: `ip link` lists the host's links", err)
	}
	if err != nil {
		return err
	}
	family := unix.AF_INET6
	if v.Addr.Is4() {
		family = unix.AF_INET
	}
	request := func() *nl.NetlinkRequest {
		req := nl.NewNetlinkRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
		msg := nl.NewIfAddrmsg(family)
		msg.Index, msg.Prefixlen = uint32(link.Attrs().Index), uint8(v.Addr.BitLen())
		req.AddData(msg)
		req.AddData(nl.NewRtAttr(unix.IFA_LOCAL, v.Addr.AsSlice()))
		req.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, v.Addr.AsSlice()))
		req.AddData(nl.NewRtAttr(ifaProto, []byte{plan.RouteProtocol}))
		if v.Addr.Is6() {
			// struct ifa_cacheinfo: preferred lifetime 0, valid lifetime unlimited.
			cache := binary.NativeEndian.AppendUint32(nil, 0)
			cache = binary.NativeEndian.AppendUint32(cache, ^uint32(0))
			req.AddData(nl.NewRtAttr(unix.IFA_CACHEINFO, append(cache, make([]byte, 8)...)))
			req.AddData(nl.NewRtAttr(unix.IFA_FLAGS, binary.NativeEndian.AppendUint32(nil, unix.IFA_F_NODAD)))
		}
		return req
	}
	if err := h.ns.Do(func() error {
		_, err := request().Execute(unix.NETLINK_ROUTE, 0)
		return err
	}); err != nil {
		return err
	}
	if v.Addr.Is4() {
		return h.announce(v.Addr, link.Attrs())
	}
	return h.awaitLocal(plan.Address{Link: v.Link, Prefix: netip.PrefixFrom(v.Addr, v.Addr.BitLen())})
}

// announce sends a gratuitous ARP request (RFC 5227, section 3), so that
// neighbours with an entry for the address update it. It does nothing on a link
// that is down or does not use ARP.
func (h *Handle) announce(addr netip.Addr, link *netlink.LinkAttrs) error {
	if link.EncapType != "ether" || len(link.HardwareAddr) != 6 || link.RawFlags&unix.IFF_UP == 0 ||
		link.RawFlags&unix.IFF_NOARP != 0 {
		return nil
	}
	frame := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	frame = append(frame, link.HardwareAddr...)
	frame = append(frame, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1) // ARP: Ethernet, IPv4, request
	frame = append(frame, link.HardwareAddr...)
	frame = append(frame, addr.AsSlice()...)
	frame = append(frame, make([]byte, 6)...)
	frame = append(frame, addr.AsSlice()...)
	return h.ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("announce %s: %w", addr, err)
		}
		defer unix.Close(fd)
		to := &unix.SockaddrLinklayer{Ifindex: link.Index, Halen: 6, Addr: [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
		if err := unix.Sendto(fd, frame, 0, to); err != nil && !errors.Is(err, unix.ENETDOWN) {
			return fmt.Errorf("announce %s: %w", addr, err)
		}
		return nil
	})
}

// DelVirtual deletes the virtual.
func (h *Handle) DelVirtual(v plan.VirtualAddress) error {
	return h.DelAddress(plan.Address{Link: v.Link, Prefix: netip.PrefixFrom(v.Addr, v.Addr.BitLen())})
}

// ReadVirtual returns the address if the link has it, whichever program has added
// it.
func (h *Handle) ReadVirtual(v plan.VirtualAddress) (plan.Object, error) {
	have, err := h.Addresses("", v.Link)
	return plan.OrNil(v, slices.Contains(have, netip.PrefixFrom(v.Addr, v.Addr.BitLen()))), err
}
