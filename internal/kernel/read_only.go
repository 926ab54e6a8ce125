package kernel

// readOnly returns a Host for use while another goroutine applies a plan
// (rtnl.Reader.Copy). It has no access to nftables, eBPF, IPVS or devices.
func (h *Host) readOnly() (*Host, error) {
	reader, err := h.rtnl.Copy()
	if err != nil {
		return nil, err
	}
	return &Host{ns: h.ns, rtnl: reader}, nil
}
