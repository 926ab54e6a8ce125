// Package provider reads configurations for the gateway where Traefik's providers
// find them, and follows their changes: the labels of a container engine's
// containers, and files. Each provider has a field with its settings in gateway.Providers,
// and a constructor here: NewDocker for the field Docker.
package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"fairlead/internal/dockerapi"
	"fairlead/internal/frontend/traefik"
	"fairlead/internal/model/gateway"
)

// Provider follows the configuration at one source.
type Provider interface {
	// Follow calls changed with the configuration now and after each change, until the context ends.
	Follow(ctx context.Context, changed Changed)
}

// Changed takes a configuration and the problems in it.
type Changed func(gateway.Config, []traefik.Problem)

// Enabled returns the providers whose settings are not nil, by their names. It starts none.
func Enabled(all gateway.Providers, log *slog.Logger) (map[string]Provider, error) {
	enabled := map[string]Provider{}
	for _, k := range kinds {
		p, err := k.open(all, log)
		if err != nil {
			return nil, err
		}
		if p != nil {
			enabled[k.name] = p
		}
	}
	return enabled, nil
}

// kind is a provider's name, and what makes it of its settings: nil if these are nil.
type kind struct {
	name string
	open func(gateway.Providers, *slog.Logger) (Provider, error)
}

// of returns the kind with a name, the settings that get returns, and a constructor.
func of[T any](name string, get func(*gateway.Providers) *T, open func(T, *slog.Logger) (Provider, error)) kind {
	return kind{name, func(all gateway.Providers, log *slog.Logger) (Provider, error) {
		if settings := get(&all); settings != nil {
			return open(*settings, log)
		}
		return nil, nil
	}}
}

// again is the time until the next attempt to reach an engine that does not answer.
const again = time.Second

// outage is how long an engine must be away before that is a problem of the configuration. An engine that
// starts anew is away for a shorter time.
const outage = 5 * time.Second

// showOutages returns what calls follow with changed. When follow fails for some time, it calls changed with the
// last configuration and the reason.
func showOutages(source string, changed Changed, follow func(Changed) error) func() error {
	var config gateway.Config
	var problems []traefik.Problem
	var known bool
	var since time.Time
	var shown string
	return func() error {
		err := follow(func(c gateway.Config, found []traefik.Problem) {
			config, problems, known, since, shown = c, found, true, time.Time{}, ""
			changed(c, found)
		})
		if since.IsZero() {
			since = time.Now()
		}
		text := fmt.Sprintf("the engine does not answer: %v (since %s); its containers stay as they are", err,
			traefik.Moment(since))
		if known && time.Since(since) >= outage && text != shown {
			shown = text
			changed(config, append(slices.Clone(problems), traefik.Problem{Source: source, Text: text, Warning: true}))
		}
		return err
	}
}

// persist calls follow again when it fails, until the context ends. It waits before that, unless the
// engine has answered for some time: engines that start anew and proxies end streams of events.
func persist(ctx context.Context, log *slog.Logger, follow func() error) {
	for logged := ""; ; {
		began := time.Now()
		err := follow()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, dockerapi.ErrEnded) && time.Since(began) >= again:
			log.Debug("the container engine ended the stream of events", "error", err)
			logged = ""
			continue
		case err.Error() != logged:
			log.Warn("the container engine does not answer: its containers stay as they are", "error", err)
			logged = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}
