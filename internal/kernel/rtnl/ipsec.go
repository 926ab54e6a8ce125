package rtnl

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// IPsecPolicies returns the selectors of the IPsec policies of the host that encrypt or
// drop packets, sorted. It leaves out the policies of single sockets, and those of XFRM
// interfaces: these apply only to packets that are routed to such an interface. A kernel
// without IPsec has no policies. Without CAP_NET_ADMIN the kernel shows none.
func (h *Reader) IPsecPolicies() ([]plan.IPsecPolicy, error) {
	handle, err := h.handles.Host().Netlink(unix.NETLINK_XFRM)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open netlink for IPsec policies: %w", err)
	}
	defer handle.Close()
	var found []plan.IPsecPolicy
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := nlutil.Retry(func() ([]netlink.XfrmPolicy, error) { return handle.XfrmPolicyList(family) })
		if err != nil && !errors.Is(err, unix.EPERM) {
			return nil, fmt.Errorf("list IPsec policies: %w", err)
		}
		for _, p := range list {
			if protects(p) {
				found = append(found, selectorOf(p))
			}
		}
	}
	slices.SortFunc(found, compareSelectors)
	return slices.Compact(found), nil
}

// protects reports whether a policy encrypts or drops packets of the host.
func protects(p netlink.XfrmPolicy) bool {
	return p.Dir <= netlink.XFRM_DIR_FWD && p.Ifid == 0 && (p.Action == netlink.XFRM_POLICY_BLOCK || len(p.Tmpls) > 0)
}

// selectorOf returns the selector of a policy. The source of outgoing packets is the
// local end, and so is the destination of incoming and forwarded ones.
func selectorOf(p netlink.XfrmPolicy) plan.IPsecPolicy {
	src, dst := nlutil.Prefix(p.Src.IP, p.Src.Mask), nlutil.Prefix(p.Dst.IP, p.Dst.Mask)
	if p.Dir == netlink.XFRM_DIR_OUT {
		return plan.IPsecPolicy{Local: src, Remote: dst, Proto: uint8(p.Proto), LocalPort: uint16(p.SrcPort),
			RemotePort: uint16(p.DstPort)}
	}
	return plan.IPsecPolicy{Local: dst, Remote: src, Proto: uint8(p.Proto), LocalPort: uint16(p.DstPort),
		RemotePort: uint16(p.SrcPort)}
}

func compareSelectors(a, b plan.IPsecPolicy) int {
	return cmp.Or(a.Local.Compare(b.Local), a.Remote.Compare(b.Remote), cmp.Compare(a.Proto, b.Proto),
		cmp.Compare(a.LocalPort, b.LocalPort), cmp.Compare(a.RemotePort, b.RemotePort))
}
