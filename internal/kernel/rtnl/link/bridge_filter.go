package link

import (
	"fmt"

	"fairlead/internal/kernel/nlutil"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// setBridgeFilter sets the bridge's br_netfilter flags, which send its frames
// through the IP rules regardless of the host's sysctls (linux/if_link.h, since
// Linux 3.18). The netlink library does not set them. A kernel without
// br_netfilter rejects the attributes; the error is ignored if on is false.
func (h *Handle) setBridgeFilter(bridge netlink.Link, on bool) error {
	err := h.ns.Do(func() error {
		req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
		msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
		msg.Index = int32(bridge.Attrs().Index)
		req.AddData(msg)
		info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
		info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
		data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
		var flag byte
		if on {
			flag = 1
		}
		data.AddRtAttr(unix.IFLA_BR_NF_CALL_IPTABLES, []byte{flag})
		data.AddRtAttr(unix.IFLA_BR_NF_CALL_IP6TABLES, []byte{flag})
		req.AddData(info)
		_, err := req.Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
	if err != nil && on {
		return fmt.Errorf("set bridge filter: %w", err)
	}
	return nil
}

// bridgeFilter reads the bridge's br_netfilter flags. It returns true if both are
// set, and false if the kernel has no such flags.
func (h *Handle) bridgeFilter(bridge netlink.Link) (on bool, err error) {
	err = h.ns.Do(func() error {
		req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_ACK)
		msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
		msg.Index = int32(bridge.Attrs().Index)
		req.AddData(msg)
		links, err := req.Execute(unix.NETLINK_ROUTE, 0)
		if err != nil || len(links) != 1 {
			return err
		}
		data := nlutil.Attribute(links[0][unix.SizeofIfInfomsg:], unix.IFLA_LINKINFO, nl.IFLA_INFO_DATA)
		on = nlutil.Flag(data, unix.IFLA_BR_NF_CALL_IPTABLES) && nlutil.Flag(data, unix.IFLA_BR_NF_CALL_IP6TABLES)
		return nil
	})
	return on, err
}
