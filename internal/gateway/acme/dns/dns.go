// Package dns proves the control of names by records of their zones (RFC 8555, 8.4), with the operators that change them.
//
// It asks no authority, and does not decide which names need a certificate.
package dns

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead/internal/model/gateway"

	"github.com/caddyserver/certmagic"
	"github.com/go-acme/lego/v5/challenge/dns01"
	"github.com/libdns/libdns"
	"github.com/mholt/acmez/v3"
	protocol "github.com/mholt/acmez/v3/acme"
)

// Solver proves the control of a name by a record of its zone (RFC 8555, 8.4).
type Solver struct {
	value    gateway.DNSChallenge
	operator operator
	client   *dns01.Client

	// mu protects the challenges that are presented, by key authorization.
	mu     sync.Mutex
	active map[string]*certmagic.DNS01Solver
}

// Providers returns the values of dnsChallenge.provider.
func Providers() []string { return slices.Sorted(maps.Keys(operators)) }

// New returns the solver, and the variables that its operator reads.
func New(value gateway.DNSChallenge) (*Solver, []string, error) {
	known, ok := operators[value.Provider]
	if !ok {
		return nil, nil, fmt.Errorf("dnsChallenge.provider %s is not built in: want one of %s; exec and httpreq call a "+
			"program or server of yours for any other", value.Provider, strings.Join(Providers(), ", "))
	}
	o, err := known.open()
	if err != nil {
		return nil, nil, fmt.Errorf("dnsChallenge.provider %s: %w", value.Provider, err)
	}
	options := dns01.NewOptions()
	options.RecursiveNameservers = value.Resolvers
	return &Solver{value: value, operator: o, client: dns01.NewClient(options),
		active: map[string]*certmagic.DNS01Solver{}}, variablesOf(known.variables), nil
}

// variablesOf returns the variables of the environment with one of the prefixes, sorted.
func variablesOf(prefixes []string) []string {
	all := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(v, prefix) })
	})
	slices.Sort(all)
	return all
}

// AsSolver returns the solver, or nil if the resolver has no DNS challenge.
func (d *Solver) AsSolver() acmez.Solver {
	if d == nil {
		return nil
	}
	return d
}

// legoMu protects the client that the library uses for all its providers.
var legoMu sync.Mutex

// with calls f while the library uses the resolver's name servers.
func (d *Solver) with(f func() error) error {
	legoMu.Lock()
	defer legoMu.Unlock()
	dns01.SetDefaultClient(d.client)
	return f()
}

// Present implements acmez.Solver. It follows a CNAME of the record's name to another zone.
func (d *Solver) Present(ctx context.Context, c protocol.Challenge) error {
	var info dns01.ChallengeInfo
	_ = d.with(func() error {
		info = dns01.GetChallengeInfo(ctx, c.Identifier.Value, c.KeyAuthorization)
		return nil
	})
	s := &certmagic.DNS01Solver{DNSManager: certmagic.DNSManager{DNSProvider: records{d, c}, TTL: time.Minute,
		PropagationDelay: d.value.DelayBeforeCheck, PropagationTimeout: max(d.operator.patience(), 2*time.Minute),
		Resolvers: d.value.Resolvers, OverrideDomain: strings.TrimSuffix(info.EffectiveFQDN, ".")}}
	if d.value.DisableChecks {
		s.PropagationTimeout = -1
	}
	d.mu.Lock()
	d.active[c.KeyAuthorization] = s
	d.mu.Unlock()
	return s.Present(ctx, c)
}

func (d *Solver) of(c protocol.Challenge) *certmagic.DNS01Solver {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.active[c.KeyAuthorization]
}

// Wait implements acmez.Waiter: it waits until name servers have the record.
func (d *Solver) Wait(ctx context.Context, c protocol.Challenge) error {
	return d.of(c).Wait(ctx, c)
}

// CleanUp implements acmez.Solver.
func (d *Solver) CleanUp(ctx context.Context, c protocol.Challenge) error {
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.active, c.KeyAuthorization)
	}()
	return d.of(c).CleanUp(ctx, c)
}

// records implements certmagic.DNSProvider for the record of one challenge.
type records struct {
	*Solver
	challenge protocol.Challenge
}

// AppendRecords implements libdns.RecordAppender.
func (r records) AppendRecords(ctx context.Context, zone string, all []libdns.Record) ([]libdns.Record, error) {
	return all, r.change(zone, all, func(fqdn, value string) error {
		return r.operator.add(ctx, zone, fqdn, value, r.challenge)
	})
}

// DeleteRecords implements libdns.RecordDeleter.
func (r records) DeleteRecords(ctx context.Context, zone string, all []libdns.Record) ([]libdns.Record, error) {
	return all, r.change(zone, all, func(fqdn, value string) error {
		return r.operator.remove(ctx, zone, fqdn, value, r.challenge)
	})
}

func (r records) change(zone string, all []libdns.Record, f func(fqdn, value string) error) error {
	return r.with(func() error {
		for _, record := range all {
			rr := record.RR()
			if err := f(libdns.AbsoluteName(rr.Name, zone), rr.Data); err != nil {
				return err
			}
		}
		return nil
	})
}
