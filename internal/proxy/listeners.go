package proxy

import (
	"context"
	"fmt"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// ListenerStats counts what one listener has forwarded since it was set.
type ListenerStats struct {
	plan.Listener
	model.ProxyStats
}

// Listeners returns the counters of each listener, in no order.
func (p *Proxy) Listeners(ctx context.Context) ([]ListenerStats, error) {
	answer, err := p.call(ctx, request{Ask: askEach})
	if err != nil {
		return nil, fmt.Errorf("read proxy counters: %w", err)
	}
	return answer.Each, nil
}

// each returns the counters of each listener.
func (r *registry) each() []ListenerStats {
	all := make([]ListenerStats, 0, len(r.groups))
	for l, g := range r.groups {
		s := ListenerStats{Listener: l}
		for i := range g.counts {
			g.counts[i].addTo(&s.ProxyStats)
		}
		all = append(all, s)
	}
	return all
}
