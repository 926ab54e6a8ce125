package services

import (
	"cmp"
	"net/http"

	"fairlead/internal/gateway/healthcheck"
	"fairlead/internal/gateway/transport"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// Follow starts, replaces or stops the checks of a service, and keeps them if they stay
// the same. state is nil if the service is gone or cannot be used.
func (s *Services) Follow(name string, state *State) {
	var wanted *checkOf
	if state != nil {
		wanted = state.check
	}
	c, running := s.checks[name]
	if running && wanted != nil && wanted.equal(c.of) {
		return
	}
	if running {
		c.Stop()
		delete(s.checks, name)
	}
	if wanted == nil {
		return
	}
	var started *healthcheck.Checks
	var err error
	// The goroutines of the checks start last, so a service that fails has none.
	failed := recovery.Object("service "+name, func() {
		through := func() (*http.Transport, error) { return transport.HTTP(wanted.via) }
		report := func(at healthcheck.Server, down bool, why string) {
			s.log.Info("server changed", "service", name, "server", gateway.ShownURL(at.URL.String()), "down",
				down, "reason", why)
		}
		started, err = healthcheck.Start(wanted.value, wanted.servers, through, report)
	})
	if err = cmp.Or(failed, err); err != nil {
		s.log.Warn("cannot check servers", "service", name, "error", err)
		return
	}
	s.checks[name] = runningCheck{started, *wanted}
}
