package pool

import "fairlead/internal/api"

// Own returns the members that selectors have found. Checks do not change them: they are
// draining if their administrator or their container requires it.
func (p *Pool) Own() (all []api.OwnReal) {
	for _, m := range p.Members {
		if !m.Leaving && !m.Spec.Select.IsZero() {
			all = append(all, api.OwnReal{Endpoint: m.Endpoint, Address: m.At.Addr(),
				Port: m.At.Port(), Weight: m.Weight, Draining: m.Status != ""})
		}
	}
	return all
}
