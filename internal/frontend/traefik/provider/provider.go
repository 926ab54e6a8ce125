package provider

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/model/gateway"
)

// Provider follows the labels that an engine has.
type Provider interface {
	// Follow calls changed with the configuration now and after each change, until the context ends.
	Follow(ctx context.Context, changed Changed)
}

// Changed takes a configuration and the problems in it.
type Changed func(gateway.Config, []traefik.Problem)

// New returns the provider for an engine: for its containers, or with SwarmMode for the services of
// its swarm.
func New(value gateway.Docker, log *slog.Logger) (Provider, error) {
	e, err := newEngine(cmp.Or(value.Endpoint, "unix:///var/run/docker.sock"), value.TLS)
	if err != nil {
		return nil, err
	}
	if value.SwarmMode {
		return newSwarm(e, value, log), nil
	}
	return newDocker(e, value, log), nil
}

// again is the time until the next attempt to reach an engine that does not answer.
const again = time.Second

// errEnded is the error if the engine has ended its stream of events.
var errEnded = errors.New("the stream of events has ended")

// persist calls follow again when it fails, until the context ends. It waits before that, unless the
// engine has answered for some time: engines that start anew and proxies end streams of events.
func persist(ctx context.Context, log *slog.Logger, follow func() error) {
	for silent := false; ; {
		began := time.Now()
		err := follow()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errEnded) && time.Since(began) >= again:
			log.Debug("the container engine ended the stream of events", "error", err)
			silent = false
			continue
		case !silent:
			log.Warn("the container engine does not answer: its containers stay as they are", "error", err)
			silent = true
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}
