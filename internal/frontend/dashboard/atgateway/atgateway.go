// Package atgateway makes the dashboard that a gateway serves itself, at api@internal and dashboard@internal. It shows
// the gateway's own objects: its process has no access to the daemon.
package atgateway

import (
	"context"
	"log/slog"

	"fairlead/internal/frontend/dashboard"
	"fairlead/internal/frontend/dashboard/chart"
	"fairlead/internal/frontend/dashboard/history"
	"fairlead/internal/gateway"
	"fairlead/internal/gateway/goroutine"
)

// pages is a dashboard with the figures of its gateway's last hour.
type pages struct {
	*dashboard.Dashboard
	stop context.CancelFunc
}

// Close implements gateway.Dashboard.
func (p pages) Close() {
	p.stop()
	p.Dashboard.Close()
}

// New returns the function that makes the dashboard of a gateway. version is that of the program.
func New(version string) func(gateway.Shown) gateway.Dashboard {
	return func(s gateway.Shown) gateway.Dashboard {
		figures := history.New(history.Gateway())
		ctx, stop := context.WithCancel(context.Background())
		goroutine.Go("count requests for charts", func() {
			figures.Run(ctx, func(context.Context) history.Values {
				values := history.Values{}
				history.AddGateway(values, s.Totals())
				return values
			})
		})
		return pages{dashboard.New(dashboard.Options{Base: s.Base, Gateway: s.Read, Version: version,
			Log:    slog.Default(),
			Charts: chart.Live(figures.Read)}), stop}
	}
}
