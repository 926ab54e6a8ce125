package kernel

import "github.com/vishvananda/netlink"

// readOnly returns a read-only Host for use while another goroutine applies a
// plan. It has its own handles into sandboxes and its own dump cache, so that the
// Release of one Host does not close the handles of the other. Both share the
// handle of the host's namespace. The returned Host has no access to nftables,
// eBPF, IPVS or devices.
func (h *Host) readOnly() (*Host, error) {
	host, err := h.at("")
	if err != nil {
		return nil, err
	}
	return &Host{ns: h.ns, handles: map[string]*netlink.Handle{"": host}}, nil
}
