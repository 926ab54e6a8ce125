// Package standalone runs the gateway in place of Traefik. This process reads the providers,
// obtains certificates and opens the entry points; a serving process has the clients.
package standalone

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"fairlead/internal/gateway/serving"
	model "fairlead/internal/model/gateway"

	"golang.org/x/sys/unix"
)

// Run serves the entry points until the context ends. Then the gateway ends as Traefik does:
// it accepts requests for requestAcceptGraceTimeout, and those in progress have graceTimeOut.
// SIGUSR1 reopens the file of the access log. Options.Log is the log of this process.
func Run(ctx context.Context, static model.Static, opt serving.Options) error {
	if !static.Providers.Any() {
		opt.Log.Warn("no provider is enabled, so there are no routers: add --providers.docker, or " +
			"--providers.file.directory=DIRECTORY")
	}
	// The serving process may have the same user, if this one may not choose.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid to trace this process: %w", err)
	}
	reopen := make(chan os.Signal, 1)
	signal.Notify(reopen, unix.SIGUSR1)
	defer signal.Stop(reopen)
	s := newSources(static, opt.Log)
	defer s.following.Wait()
	following, cancel := context.WithCancel(context.WithoutCancel(ctx)) // they change while the gateway ends
	defer cancel()
	if err := s.start(following); err != nil {
		return err
	}
	obtaining, stop := context.WithCancel(ctx)
	defer stop()
	s.following.Go(func() { s.certificates.Run(obtaining) })
	c, err := s.serve(ctx, opt)
	if c == nil || err != nil {
		return err
	}
	for _, e := range static.EntryPoints {
		opt.Log.Info("serving", "entry point", e.Name, "address", c.Address(e.Name))
	}
	control(ctx, c, reopen, opt.Log)
	ending, end := context.WithTimeout(context.WithoutCancel(ctx), stopLimit(static))
	defer end()
	c.Stop(ending)
	return nil
}

// control reopens the access log at each signal until the context ends.
func control(ctx context.Context, c *serving.Controller, reopen <-chan os.Signal, log *slog.Logger) {
	for {
		select {
		case <-reopen:
			if err := c.Reopen(ctx); err != nil {
				log.Error("cannot reopen the access log", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// stopMargin is how long a serving process may take to end after its grace times.
const stopMargin = 5 * time.Second

// stopLimit is the time after which a serving process that should end is killed.
func stopLimit(static model.Static) time.Duration {
	var accept, grace time.Duration
	for _, e := range static.EntryPoints {
		accept = max(accept, e.Timeouts.AcceptGrace)
		grace = max(grace, e.Timeouts.Limits(model.DefaultTimeLimits()).Grace)
	}
	return accept + grace + stopMargin
}
