package datapath

// Check reports whether the programs are attached and pinned, and whether their
// maps contain what Fairlead has written.
func (h *Handle) Check() (attached, intact bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	attached = h.overlays.programs == nil || h.overlays.programs.AllAttached()
	p := h.ebpfState
	if p == nil {
		return attached, true
	}
	return attached && p.Attached() && p.Pinned(), len(p.Table().Hurt()) == 0 && p.Balancer().AllIntact()
}

// RenewAddresses passes the host's current addresses to the eBPF programs. It is
// safe for concurrent use.
func (h *Handle) RenewAddresses() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ebpfState == nil {
		return nil
	}
	local, err := h.rtnl.LocalAddrs()
	if err != nil {
		return err
	}
	return h.ebpfState.Sources().SetAddresses(local)
}
