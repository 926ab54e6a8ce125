package service

import (
	"context"
	"errors"
	"net"

	"fairlead/internal/daemon"
	"fairlead/internal/frontend/metrics"
)

// gauge shows the daemon's metrics to whoever may see them.
type gauge struct {
	*metrics.Metrics
	// at is nil if they are not to be shown.
	at net.Listener
}

// newGauge listens, if it is asked for, and answers nobody yet.
func newGauge(opt Options) (gauge, error) {
	g := gauge{Metrics: metrics.New(opt.Version)}
	if opt.Metrics == "" {
		return g, nil
	}
	var err error
	g.at, err = metrics.Listen(opt.Metrics, opt.MetricsGroup)
	return g, err
}

// show answers from now on, until stop.
func (g gauge) show(d *daemon.Daemon, opt Options) (stop func() error) {
	if g.at == nil {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- metrics.Serve(ctx, g.at, g.Handler(d, opt.Log)) }()
	opt.Log.Info("metrics", "address", opt.Metrics)
	return func() error {
		cancel()
		return <-ended
	}
}

// close ends the listener.
func (g gauge) close() error {
	if g.at == nil {
		return nil
	}
	if err := g.at.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
