package acme

import (
	"context"
	"maps"
	"sync"

	"fairlead/internal/model/gateway"

	"github.com/mholt/acmez/v3"
	protocol "github.com/mholt/acmez/v3/acme"
)

// challenges are what the entry points answer to authorities.
type challenges struct {
	mu     sync.Mutex
	tokens map[string]string
	names  map[string]gateway.Certificate
	// changed returns when the entry points use the challenges.
	changed func(context.Context) error
}

func newChallenges(changed func(context.Context) error) *challenges {
	return &challenges{tokens: map[string]string{}, names: map[string]gateway.Certificate{}, changed: changed}
}

// addTo adds the challenges to a configuration.
func (c *challenges) addTo(to *gateway.ACME) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to.Tokens, to.Challenges = maps.Clone(c.tokens), maps.Clone(c.names)
}

func (c *challenges) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// solvers returns the solvers of a resolver's challenges.
func (c *challenges) solvers(value gateway.Resolver, dns acmez.Solver) map[string]acmez.Solver {
	all := map[string]acmez.Solver{}
	if value.HTTPChallenge != "" {
		all[protocol.ChallengeTypeHTTP01] = httpSolver{c}
	}
	if value.TLSChallenge {
		all[protocol.ChallengeTypeTLSALPN01] = tlsSolver{c}
	}
	if dns != nil {
		all[protocol.ChallengeTypeDNS01] = dns
	}
	return all
}

// httpSolver publishes the key authorization of a token (RFC 8555, 8.3).
type httpSolver struct{ *challenges }

// Present implements acmez.Solver.
func (s httpSolver) Present(ctx context.Context, c protocol.Challenge) error {
	s.set(func() { s.tokens[c.Token] = c.KeyAuthorization })
	return s.changed(ctx)
}

// CleanUp implements acmez.Solver.
func (s httpSolver) CleanUp(ctx context.Context, c protocol.Challenge) error {
	s.set(func() { delete(s.tokens, c.Token) })
	return s.changed(context.WithoutCancel(ctx))
}

// tlsSolver publishes the certificate that proves the control of a name (RFC 8737, 3).
type tlsSolver struct{ *challenges }

// Present implements acmez.Solver.
func (s tlsSolver) Present(ctx context.Context, c protocol.Challenge) error {
	certificate, err := challengeCertificate(c)
	if err != nil {
		return err
	}
	s.set(func() { s.names[c.Identifier.Value] = certificate })
	return s.changed(ctx)
}

// CleanUp implements acmez.Solver.
func (s tlsSolver) CleanUp(ctx context.Context, c protocol.Challenge) error {
	s.set(func() { delete(s.names, c.Identifier.Value) })
	return s.changed(context.WithoutCancel(ctx))
}
