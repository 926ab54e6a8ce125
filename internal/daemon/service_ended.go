package daemon

import (
	"maps"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/daemon/pool"
	"fairlead/internal/kernel/rawtcp"
)

// reportEnded reports how many connections of clients the last step has reset, per
// real server, or per service if the real server is no longer known. pools are the
// pools before and after the step. If clients are still being reset, it reports later.
func (s *services) reportEnded(pools ...map[string]*pool.Pool) {
	s.resets.Report(func() {
		all := map[string]rawtcp.Ended{}
		for _, e := range s.cfg.Flows.TCP().TakeEnded() {
			object := pool.ObjectOf(e.Frontend, e.Real, pools)
			sum := all[object]
			sum.Connections += e.Connections
			sum.Silent += e.Silent
			all[object] = sum
		}
		for _, object := range slices.Sorted(maps.Keys(all)) {
			s.note(api.Event{Kind: api.ClientsReset, Object: object, Detail: all[object].Text()})
		}
	})
}
