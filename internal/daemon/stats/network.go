// Package stats reads the counters of the host, and assigns them to networks, publishes and real servers.
package stats

import (
	"fairlead/internal/api"
	"fairlead/internal/kernel/counter"
)

// sums adds up the traffic of networks. It keeps the last counters of removed
// endpoints with their network.
type sums struct {
	last map[string]api.EndpointStats
	gone map[string]counter.Traffic
}

// addUp sets the traffic of the networks.
func (s *sums) addUp(networks []api.NetworkStats, endpoints []api.EndpointStats) {
	now, total := map[string]api.EndpointStats{}, map[string]counter.Traffic{}
	for _, e := range endpoints {
		if e.Traffic != nil {
			now[e.Endpoint] = e
			total[e.Network] = total[e.Network].Add(*e.Traffic)
		}
	}
	gone := map[string]counter.Traffic{}
	for _, n := range networks {
		gone[n.Network] = s.gone[n.Network]
	}
	for name, before := range s.last {
		if was, there := gone[before.Network]; there && linkReplaced(before, now[name]) {
			gone[before.Network] = was.Add(*before.Traffic)
		}
	}
	for i, n := range networks {
		sum := gone[n.Network].Add(total[n.Network])
		networks[i].Traffic = &sum
	}
	s.last, s.gone = now, gone
}

// linkReplaced reports whether an endpoint's link was replaced or removed.
func linkReplaced(before, now api.EndpointStats) bool {
	return now.Traffic == nil || now.Network != before.Network ||
		now.Traffic.Bytes.In < before.Traffic.Bytes.In || now.Traffic.Bytes.Out < before.Traffic.Bytes.Out
}
