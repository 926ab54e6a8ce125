package standalone

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/frontend/traefik/provider"
	"fairlead/internal/gateway/acme"
	"fairlead/internal/gateway/serving"
	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
)

// firstWait is how long the gateway waits for the first configurations before it accepts
// connections. A provider that does not answer must not stop the others.
const firstWait = 3 * time.Second

// sources puts the configurations of all providers together, adds certificates, and sends the
// result to the serving process.
type sources struct {
	static       model.Static
	log          *slog.Logger
	certificates *acme.Manager
	// following are the goroutines that follow providers, first those without a
	// configuration yet.
	following, first sync.WaitGroup

	mu    sync.Mutex
	parts map[string]Source
	// controller is nil until the serving process has started.
	controller *serving.Controller
	// reported are the problems that were logged already.
	reported map[string]bool
}

// Source is the configuration of one provider, with its problems.
type Source struct {
	Config   model.Config
	Problems []traefik.Problem
}

func newSources(static model.Static, log *slog.Logger) *sources {
	s := &sources{static: static, log: log, parts: map[string]Source{}, reported: map[string]bool{}}
	s.certificates = acme.New(acme.Options{Static: static, Log: log, Changed: s.again})
	return s
}

// start begins to follow the providers.
func (s *sources) start(ctx context.Context) error {
	all, err := provider.Enabled(s.static.Providers, s.log)
	for name, p := range all {
		s.follow(ctx, name, p.Follow)
	}
	return err
}

// follow takes the configurations of one provider until the context ends.
func (s *sources) follow(ctx context.Context, name string, follow func(context.Context, provider.Changed)) {
	s.first.Add(1)
	first := sync.OnceFunc(s.first.Done)
	s.following.Go(func() {
		defer first()
		follow(ctx, func(config model.Config, problems []traefik.Problem) {
			defer first()
			s.mu.Lock()
			defer s.mu.Unlock()
			before := s.parts[name].Config
			Reuse(&config, &before)
			s.parts[name] = Source{config, problems}
			_ = s.apply(ctx) // it is logged, and the next serving process has the configuration
		})
	})
}

// serve starts the serving process with the first configuration. It returns nil if the context
// ends before.
func (s *sources) serve(ctx context.Context, opt serving.Options) (*serving.Controller, error) {
	all := make(chan struct{})
	go func() {
		s.first.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-ctx.Done():
		return nil, nil
	case <-time.After(firstWait):
		s.log.Warn("a provider has not answered yet: the gateway begins without its routers")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	config, known := s.complete()
	c, statuses, err := serving.Start(ctx, opt, s.static, &config, known)
	if err != nil {
		return nil, err
	}
	s.controller = c
	s.report(statuses)
	return c, nil
}

// complete returns the configuration of all providers, with certificates and challenges, and
// the problems that are known. The caller has locked mu.
func (s *sources) complete() (model.Config, []status.Status) {
	config, known := Together(s.parts)
	s.certificates.Complete(&config)
	return config, known
}

// again puts the configuration to use with other certificates and challenges. It returns when
// the entry points use them.
func (s *sources) again(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apply(ctx)
}

// apply sends the configuration to the serving process. The caller has locked mu.
func (s *sources) apply(ctx context.Context) error {
	if s.controller == nil {
		return nil
	}
	config, known := s.complete()
	statuses, err := s.controller.Apply(&config, known)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Error("the serving process has not got the configuration", "error", err)
		}
		return err
	}
	s.report(statuses)
	return nil
}
