package process

import (
	"context"
	"errors"
	"net"
	"time"

	"fairlead/internal/daemon"
	"fairlead/internal/engine"
	"fairlead/internal/frontend/metrics"
)

// gauge serves the daemon's metrics.
type gauge struct {
	*metrics.Metrics
	// at is nil if the metrics are not served.
	at net.Listener
}

// newGauge listens if opt.Metrics is set. It does not serve yet.
func newGauge(opt Options) (gauge, error) {
	g := gauge{Metrics: metrics.New(opt.Version)}
	if opt.Metrics == "" {
		return g, nil
	}
	var err error
	g.at, err = metrics.Listen(opt.Metrics, opt.MetricsGroup)
	return g, err
}

// Applied implements daemon.Meter. A step that waits for sockets of the proxy is not counted: it has changed nothing, and
// the daemon repeats it.
func (g gauge) Applied(took time.Duration, err error) {
	if !errors.As(err, new(*engine.UnopenedError)) {
		g.Metrics.Applied(took, err)
	}
}

// show serves the metrics until stop is called.
func (g gauge) show(d *daemon.Daemon, n *node, opt Options) (stop func() error) {
	if g.at == nil {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- metrics.Serve(ctx, g.at, g.Handler(d, n, opt.Log)) }()
	opt.Log.Info("serve metrics", "address", opt.Metrics)
	return func() error {
		cancel()
		return <-ended
	}
}

// close closes the listener.
func (g gauge) close() error {
	if g.at == nil {
		return nil
	}
	if err := g.at.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
