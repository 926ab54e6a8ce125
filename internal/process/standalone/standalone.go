// Package standalone runs the gateway as a process of its own, in place of Traefik.
package standalone

import (
	"context"
	"log/slog"
	"sync"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/frontend/traefik/provider"
	"fairlead/internal/gateway"
	"fairlead/internal/gateway/acme"
	model "fairlead/internal/model/gateway"
)

// Run serves the entry points until the context ends.
func Run(ctx context.Context, static model.Static, log *slog.Logger) error {
	g, err := gateway.New(static, log)
	if err != nil {
		return err
	}
	if l := static.AccessLog; l != nil && l.FilePath != "" {
		file, err := gateway.OpenLog(l.FilePath)
		if err != nil {
			return err
		}
		g.LogTo(file)
	}
	listeners, err := gateway.Listen(static.EntryPoints)
	if err != nil {
		return err
	}
	for _, e := range static.EntryPoints {
		if l := listeners[e.Name].TCP; l != nil {
			log.Info("serving", "entry point", e.Name, "address", l.Addr().String())
		}
	}
	if static.Docker == nil && static.File == nil {
		log.Warn("no provider is enabled, so there are no routers: add --providers.docker, or " +
			"--providers.file.directory=DIRECTORY")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &sources{gateway: g, log: log, parts: map[string]part{}, reported: map[string]bool{}}
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	s.certificates = acme.New(acme.Options{Static: static, Log: log, Changed: s.again})
	following.Go(func() { s.certificates.Run(ctx) })
	if err := s.start(ctx, static, &following); err != nil {
		return err
	}
	return g.Serve(ctx, listeners)
}

// sources puts the configurations of all providers together.
type sources struct {
	gateway *gateway.Gateway
	log     *slog.Logger
	mu      sync.Mutex
	parts   map[string]part
	// reported are the problems that were logged already.
	reported     map[string]bool
	certificates *acme.Manager
}

// part is the configuration of one provider.
type part struct {
	config   model.Config
	problems []traefik.Problem
}

func (s *sources) start(ctx context.Context, static model.Static, following *sync.WaitGroup) error {
	if static.File != nil {
		files, err := provider.NewFiles(*static.File, s.log)
		if err != nil {
			return err
		}
		following.Go(func() { files.Follow(ctx, s.from("file")) })
	}
	if static.Docker != nil {
		docker, err := provider.NewDocker(*static.Docker, s.log)
		if err != nil {
			return err
		}
		following.Go(func() { docker.Follow(ctx, s.from("docker")) })
	}
	return nil
}

// from returns a function that replaces the configuration of one provider.
func (s *sources) from(name string) provider.Changed {
	return func(config model.Config, problems []traefik.Problem) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.parts[name] = part{config, problems}
		s.apply()
	}
}

// again puts the configuration to use with other certificates.
func (s *sources) again(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply()
	return nil
}

// apply puts the configurations of all providers to use. The caller has locked mu.
func (s *sources) apply() {
	all, known := together(s.parts)
	s.certificates.Complete(&all)
	s.report(s.gateway.Apply(&all, known))
}
