package networks

import (
	"fmt"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// CheckOverlap returns an error if a new subnet of the network overlaps a subnet that
// the host reaches without Fairlead: the host would lose its neighbours there. It does
// not check networks on a parent's LAN, which have the LAN's subnet.
func (ns *Networks) CheckOverlap(w model.Desired, n model.Network) error {
	if n.Traits().OnLAN {
		return nil
	}
	have, _ := w.Network(n.Name)
	added := slices.DeleteFunc(slices.Clone(n.Subnets), func(s model.Subnet) bool {
		return slices.ContainsFunc(have.Subnets,
			func(o model.Subnet) bool { return o.Prefix.Masked() == s.Prefix.Masked() })
	})
	if n.AllowOverlap || len(added) == 0 {
		return nil
	}
	reached, err := ns.kernel.Net().Reached()
	if err != nil {
		return fmt.Errorf("network %s: %w", n.Name, err)
	}
	for _, s := range added {
		for _, r := range reached {
			if s.Prefix.Overlaps(r.Prefix) {
				return api.Faultf(api.Conflict,
					"network %s: subnet %s overlaps %s of this host: choose another subnet, or allow it (--allow-overlap; in a file, allow-overlap: true; in Docker, -o allow-overlap=true)", n.Name, s.Prefix, r)
			}
		}
	}
	return nil
}
