package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/driver"
	"fairlead/internal/ipam"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
	"fairlead/internal/store"
)

// target is a state to apply, with its plan.
type target struct {
	full   model.State
	leases ipam.Leases
	plan   plan.Plan
	// parts are the plans that the plan consists of.
	parts planned
}

// target validates the state, leases the missing addresses and builds the plan, for
// a host with this record.
func (e *Engine) target(want model.State, record store.Record) (target, error) {
	facts, err := e.facts(want)
	if err != nil {
		return target{}, err
	}
	if err := errors.Join(want.Validate(), e.supported(want, facts)); err != nil {
		return target{}, err
	}
	full, leases, err := e.complete(want, record.Leases, facts)
	if err != nil {
		return target{}, err
	}
	virtual, err := e.virtual(full, record)
	if err != nil {
		return target{}, err
	}
	p, err := e.build(full, facts, virtual)
	if err == nil {
		p, err = e.keepRouters(p, record)
	}
	return target{full, leases, e.resets.addTo(p), e.planned}, err
}

// facts returns the facts about the host. If there are virtual services, they
// include the host's addresses. They include the links that networks ask about, and the
// missing features of eBPF programs that publishes and services may need.
func (e *Engine) facts(s model.State) (plan.Facts, error) {
	facts := e.cfg.Facts
	if len(s.Services) > 0 {
		local, err := e.cfg.Kernel.Net().LocalAddrs()
		if err != nil {
			return facts, err
		}
		facts.Own = make(map[netip.Addr]bool, len(local))
		for _, a := range local {
			facts.Own[a] = true
		}
	}
	var err error
	if facts.Missing, err = e.missing(s); err != nil {
		return facts, err
	}
	if facts.IPsec, err = policies(e.cfg.Kernel.Net(), s); err != nil {
		return facts, err
	}
	if len(s.Networks) > 0 {
		if facts.Firewalls, err = e.cfg.Inspector.IPTables().Firewalls(); err != nil {
			return facts, fmt.Errorf("read the host's firewall rules: %w", err)
		}
	}
	var asked []string
	for _, n := range s.Networks {
		asked = append(asked, n.Asks()...)
	}
	if len(asked) == 0 {
		return facts, nil
	}
	if facts.Links, err = e.cfg.Kernel.Net().Links(asked); err != nil {
		return facts, fmt.Errorf("read the host's links: %w", err)
	}
	return facts, nil
}

// policies returns the IPsec policies that cover packets to an address of the host or of
// a virtual service.
func policies(net *rtnl.Reader, s model.State) ([]plan.IPsecPolicy, error) {
	if len(s.Publishes)+len(s.Services) == 0 {
		return nil, nil
	}
	all, err := net.IPsecPolicies()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	dialled, err := net.LocalAddrs()
	for _, v := range s.Services {
		dialled = append(dialled, v.Addresses...)
	}
	return slices.DeleteFunc(all, func(p plan.IPsecPolicy) bool {
		return !slices.ContainsFunc(dialled, func(a netip.Addr) bool { return !a.IsLoopback() && p.Local.Contains(a) })
	}), err
}

// supported checks every network and publish against this kernel and against its
// driver or publish mode.
func (e *Engine) supported(s model.State, facts plan.Facts) error {
	var errs []error
	for _, n := range s.Networks {
		d, ok := paths.Driver(n.Driver)
		if !ok {
			errs = append(errs, &UnsuitableError{n.Name,
				fmt.Errorf("there is no driver %q: `fairlead paths` lists them", n.Driver)})
		} else if missing := paths.Missing(facts, d.Needs()); missing != "" {
			errs = append(errs, &UnsuitableError{n.Name,
				fmt.Errorf("driver %s cannot work on this host: %s", n.Driver, missing)})
		} else if err := d.Validate(n, facts); err != nil {
			errs = append(errs, &UnsuitableError{n.Name, err})
		}
	}
	for _, p := range s.Publishes {
		if p.Via == model.ViaAuto {
			continue // chosen when the addresses are known
		}
		w, ok := paths.Mode(p.Via)
		if !ok {
			errs = append(errs, fmt.Errorf("publish %s: there is no publish mode %q: `fairlead paths` lists them", p,
				p.Via))
		} else if missing := paths.Missing(facts, w.Needs()); missing != "" {
			errs = append(errs, fmt.Errorf("publish %s: via %s cannot work on this host: %s", p, p.Via, missing))
		} else if err := w.Validate(p); err != nil {
			errs = append(errs, fmt.Errorf("publish %s: %w", p, err))
		}
	}
	return errors.Join(errs...)
}

// planned holds the plans that drivers made for networks and endpoints, by name.
// Drivers are pure functions, so a plan is valid until its network or endpoint
// changes. To add an endpoint to a host with thousands, only one endpoint is
// planned.
type planned struct {
	// links are the answers about the host's links.
	links     map[string]plan.HostLink
	firewalls []plan.Firewall
	ipsec     []plan.IPsecPolicy
	networks  map[string]plannedNetwork
	endpoints map[string]*plannedEndpoint
	services  map[string]*plannedService
}

type plannedNetwork struct {
	of   model.Network
	part plan.Part
}

type plannedEndpoint struct {
	of   model.Endpoint
	part plan.Part
	at   plan.Attachment
}

// build joins the plans of all drivers and publish modes. supported must have found
// them all.
func (e *Engine) build(s model.State, facts plan.Facts, virtual plan.Plan) (plan.Plan, error) {
	services := e.planned.services
	parts, attachments := e.buildEndpoints(s, facts)
	for _, w := range paths.Modes() {
		if slices.ContainsFunc(s.Publishes, func(p model.Publish) bool { return p.Via == w.Name() }) {
			parts = append(parts, plan.NewPart(w.Shared(attachments)))
		}
	}
	for _, p := range s.Publishes {
		w, _ := paths.Mode(p.Via)
		at := e.planned.endpoints[p.Endpoint].at
		if err := w.Reaches(at); err != nil {
			return nil, fmt.Errorf("publish %s: %w", p, err)
		}
		parts = append(parts, plan.NewPart(w.Publish(p, at)))
	}
	parts = append(append(parts, plan.NewPart(virtual)), e.buildServices(s, attachments, services)...)
	parts = append(parts, plan.NewPart(plan.FilterChains(facts.Firewalls, parts, driver.RoutedRanges(s.Networks))),
		plan.NewPart(plan.ProxiedPorts(parts)))
	return plan.Merge(parts...)
}

// buildEndpoints returns the plans of the drivers and the attachment of each
// endpoint.
func (e *Engine) buildEndpoints(s model.State, facts plan.Facts) ([]plan.Part, []plan.Attachment) {
	before := e.planned
	e.planned = planned{links: facts.Links, firewalls: facts.Firewalls, ipsec: facts.IPsec,
		networks:  make(map[string]plannedNetwork, len(s.Networks)),
		endpoints: make(map[string]*plannedEndpoint, len(s.Endpoints))}
	of := map[string][]int{}
	for i, ep := range s.Endpoints {
		of[ep.Network] = append(of[ep.Network], i)
	}
	parts := make([]plan.Part, 0, len(s.Networks)+len(s.Endpoints)+len(s.Publishes))
	attachments := make([]plan.Attachment, 0, len(s.Endpoints))
	for _, n := range s.Networks {
		d, _ := paths.Driver(n.Driver)
		known, ok := before.networks[n.Name]
		same := ok && known.of.Equal(n)
		network := plannedNetwork{n, plan.NewPart(d.Network(n, facts))}
		e.planned.networks[n.Name], parts = network, append(parts, network.part)
		for _, i := range of[n.Name] {
			ep := s.Endpoints[i]
			made := before.endpoints[ep.Name]
			if !same || made == nil || !made.of.Equal(ep) {
				made = &plannedEndpoint{ep, plan.NewPart(driver.EndpointPlan(d, n, ep)), d.Attachment(n, ep)}
			}
			e.planned.endpoints[ep.Name] = made
			parts, attachments = append(parts, made.part), append(attachments, made.at)
		}
	}
	return parts, attachments
}
