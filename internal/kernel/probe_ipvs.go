package kernel

import (
	"errors"
	"fmt"

	"fairlead/internal/kernel/ipvs"
	"fairlead/internal/plan"
)

// probeIPVS lists the virtual services of the probe's namespace, and creates the
// table that masquerades flows of IPVS.
func probeIPVS(h *Host) error {
	c, err := ipvs.Open(int(h.ns.File().Fd()))
	if err != nil {
		return err
	}
	_, err = c.Services()
	if err = errors.Join(err, c.Close()); err != nil {
		return err
	}
	if !since(release(), plan.FeatureIPVS) {
		return fmt.Errorf("IPVS of this kernel keeps the flows of removed real servers: run %s",
			plan.FeatureIPVS.Release())
	}
	if h.nft.Available() != nil {
		return nil
	}
	if err := h.nft.SetIPVSTable(plan.IPVSTable{}); err != nil {
		return fmt.Errorf("the kernel does not support rules on conntrack labels (%w): load nft_ct, nft_masq and nft_chain_nat, "+
			"built with CONFIG_NF_CONNTRACK_LABELS", err)
	}
	return h.nft.DelIPVSTable(plan.IPVSTable{})
}

// since reports whether a release, as `uname -r` prints it, has the feature. It
// returns true for a release that it cannot parse.
func since(release string, f plan.Feature) bool {
	var major, minor int
	if n, err := fmt.Sscanf(release, "%d.%d", &major, &minor); n < 2 || err != nil {
		return true // unknown, and most kernels in use are new enough
	}
	wantMajor, wantMinor := f.Since()
	return major > wantMajor || major == wantMajor && minor >= wantMinor
}
