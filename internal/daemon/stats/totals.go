package stats

import (
	"context"

	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"
)

// Totals are sums over the whole host. A value that could not be read is nil.
type Totals struct {
	// Traffic is that of all endpoints, also of those that were removed.
	Traffic *counter.Traffic
	// Flows are all flows of the present publishes, Drops the packets that they could not redirect.
	Flows, Drops *uint64
	// Proxy is nil if no proxy runs.
	Proxy     *model.ProxyStats
	Conntrack *counter.Fill
}

// Totals reads the counters of the host, but not the open flows: the kernel would have to list all of them. It locks
// the mutex of the state.
func (m *Reader) Totals(ctx context.Context) (t Totals) {
	m.counting.Lock()
	defer m.counting.Unlock()
	s, endpoints := m.counted()
	if m.countLinks(&s, endpoints) == nil {
		t.Traffic = new(counter.Traffic)
		for _, n := range s.Networks {
			*t.Traffic = t.Traffic.Add(*n.Traffic)
		}
	}
	if m.countPublishes(ctx, &s, newIndex(s.Publishes)) == nil {
		t.Flows, t.Drops = new(uint64), new(uint64)
		for _, p := range s.Publishes {
			if p.Flows != nil {
				*t.Flows += *p.Flows
			}
			if p.Drops != nil {
				*t.Drops += p.Drops.In + p.Drops.Out
			}
		}
	}
	t.Proxy = s.Proxy
	if fill, ok := m.cfg.Counters.Conntrack().Fill(); ok {
		t.Conntrack = &fill
	}
	return t
}
