package hosted

import (
	"context"

	"fairlead/internal/gateway/metric"
)

// Totals returns the counters of the requests of the daemon's gateway. It returns a Fault with code NotFound if no
// gateway runs.
func (r *Runner) Totals(ctx context.Context) (metric.Totals, error) {
	c, err := r.running()
	if err != nil {
		return metric.Totals{}, err
	}
	return c.Totals(ctx)
}
