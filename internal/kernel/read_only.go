package kernel

import "github.com/vishvananda/netlink"

// readOnly returns the host as one sees it who looks while others apply plans:
// with handles into sandboxes and a glimpse of its own, so that the looker's
// Release takes nothing from their hands, nor theirs from the looker's. The
// handle of the host's namespace is the same. It knows no nftables, eBPF, IPVS
// or devices.
func (h *Host) readOnly() (*Host, error) {
	host, err := h.at("")
	if err != nil {
		return nil, err
	}
	return &Host{ns: h.ns, handles: map[string]*netlink.Handle{"": host}}, nil
}
