package acme

import (
	"context"
	"errors"

	"fairlead/internal/model/gateway"

	"github.com/caddyserver/certmagic"
	protocol "github.com/mholt/acmez/v3/acme"
)

// Shared is a storage that the gateways of several hosts use at the same time. A value may only be changed by
// the gateway that has its lock: the key of the certificate, also for its attempts, or that of the account.
type Shared interface {
	certmagic.Storage
	// Try takes a lock for as long as ctx lasts and it is not lost; held ends then, with the cause.
	// interrupted is how many gateways in a row had the lock before and have ended without releasing it. Returns
	// gateway.Busy (errors.As) if another one has it. After an error, Refresh is called when another attempt
	// makes sense.
	Try(ctx context.Context, name string) (held context.Context, interrupted int, err error)
	// Present makes all gateways answer a challenge of the certificate whose lock this one has.
	Present(ctx context.Context, lock string, c gateway.Challenge) error
	CleanUp(ctx context.Context, lock string, c gateway.Challenge) error
	// Challenges returns what all gateways answer.
	Challenges() []gateway.Challenge
}

// errNotShared is the problem of a resolver whose storage the gateway does not have.
var errNotShared = errors.New("storage cluster: only the gateway that fairlead.yaml declares has it: for a file of " +
	"this name, set ./cluster")

// errInterrupted is the failure of an attempt that no gateway has completed.
var errInterrupted = errors.New("the gateways that tried have ended during the attempt")

// mostInterrupted is how many gateways may end during an attempt before it counts as failed.
const mostInterrupted = 2

// sharedSolver publishes challenges of HTTP-01 and TLS-ALPN-01 for all gateways.
type sharedSolver struct {
	shared Shared
	lock   string
}

// Present implements acmez.Solver.
func (s sharedSolver) Present(ctx context.Context, c protocol.Challenge) error {
	value, err := challengeOf(c)
	if err != nil {
		return err
	}
	return s.shared.Present(ctx, s.lock, value)
}

// CleanUp implements acmez.Solver.
func (s sharedSolver) CleanUp(ctx context.Context, c protocol.Challenge) error {
	value := gateway.Challenge{Token: c.Token}
	if c.Type == protocol.ChallengeTypeTLSALPN01 {
		value = gateway.Challenge{Name: c.Identifier.Value}
	}
	return s.shared.CleanUp(ctx, s.lock, value)
}

// challengeOf returns what the gateways answer.
func challengeOf(c protocol.Challenge) (gateway.Challenge, error) {
	if c.Type != protocol.ChallengeTypeTLSALPN01 {
		return gateway.Challenge{Token: c.Token, KeyAuthorization: c.KeyAuthorization}, nil
	}
	certificate, err := challengeCertificate(c)
	return gateway.Challenge{Name: c.Identifier.Value, Certificate: certificate}, err
}

// addShared adds the challenges of a shared storage to a configuration.
func addShared(all []gateway.Challenge, to *gateway.ACME) {
	for _, c := range all {
		if c.Token != "" {
			to.Tokens[c.Token] = c.KeyAuthorization
		}
		if c.Name != "" {
			to.Challenges[c.Name] = c.Certificate
		}
	}
}

// isBusy reports whether the gateway of another host obtains a certificate.
func isBusy(err error) bool { return errors.As(err, new(gateway.Busy)) }
