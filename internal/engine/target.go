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

// target is a completed state to apply, with its plan.
type target struct {
	*graph
	leases ipam.Leases
	// last are the last ones of the new leases.
	last ipam.Last
	plan plan.Plan
}

// target validates the state, leases the missing addresses and builds the plan, for
// a host with this record.
func (e *Engine) target(want model.State, record store.Record) (target, error) {
	g := compile(want)
	facts, err := e.facts(g)
	if err != nil {
		return target{}, err
	}
	if err := errors.Join(want.Validate(), g.supported(facts)); err != nil {
		return target{}, err
	}
	leases, last, err := e.complete(g, record.Leases, facts)
	if err != nil {
		return target{}, err
	}
	virtual, err := e.virtual(g.state, record)
	if err != nil {
		return target{}, err
	}
	p, err := e.build(g, facts, virtual)
	if err == nil {
		p, err = e.keepRouters(p, record)
	}
	return target{g, leases, last, e.resets.addTo(p)}, err
}

// facts returns the facts about the host. If there are virtual services, they
// include the host's addresses. They include the links that networks ask about, and the
// missing features of eBPF programs that publishes and services may need.
func (e *Engine) facts(g *graph) (plan.Facts, error) {
	facts, s := e.cfg.Facts, g.state
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
	if facts.Missing, err = e.missing(g); err != nil {
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
func (g *graph) supported(facts plan.Facts) error {
	var errs []error
	for _, n := range g.networks {
		if n.driver == nil {
			errs = append(errs, &UnsuitableError{n.Name,
				fmt.Errorf("there is no driver %q: `fairlead paths` lists them", n.Driver)})
		} else if missing := paths.Missing(facts, n.driver.Needs()); missing != "" {
			errs = append(errs, &UnsuitableError{n.Name,
				fmt.Errorf("driver %s cannot work on this host: %s", n.Driver, missing)})
		} else if err := n.driver.Validate(*n.Network, facts); err != nil {
			errs = append(errs, &UnsuitableError{n.Name, err})
		}
	}
	for _, p := range g.publishes {
		if p.Via == model.ViaAuto {
			continue // chosen when the addresses are known
		}
		if p.mode == nil {
			errs = append(errs, fmt.Errorf("publish %s: there is no publish mode %q: `fairlead paths` lists them", p,
				p.Via))
		} else if missing := paths.Missing(facts, p.mode.Needs()); missing != "" {
			errs = append(errs, fmt.Errorf("publish %s: via %s cannot work on this host: %s", p, p.Via, missing))
		} else if err := p.mode.Validate(*p.Publish); err != nil {
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
	networks  map[string]model.Network
	endpoints map[string]*plannedEndpoint
	services  map[string]*plannedService
}

type plannedEndpoint struct {
	of   model.Endpoint
	part plan.Part
	at   *plan.Attachment
}

// build joins the plans of all drivers and publish modes. supported must have found
// them all.
func (e *Engine) build(g *graph, facts plan.Facts, virtual plan.Plan) (plan.Plan, error) {
	services := e.planned.services
	parts, attachments := e.buildEndpoints(g, facts)
	for _, w := range paths.Modes() {
		if slices.ContainsFunc(g.publishes, func(p *published) bool { return p.Via == w.Name() }) {
			parts = append(parts, plan.NewPart(w.Shared(attachments)))
		}
	}
	for _, p := range g.publishes {
		if err := p.mode.Reaches(*p.to.at); err != nil {
			return nil, fmt.Errorf("publish %s: %w", p, err)
		}
		parts = append(parts, plan.NewPart(p.mode.Publish(*p.Publish, *p.to.at)))
	}
	parts = append(append(parts, plan.NewPart(virtual)), e.buildServices(g, attachments, services)...)
	routed := driver.RoutedRanges(g.state.Networks)
	parts = append(parts, plan.NewPart(plan.FilterChains(facts.Firewalls, parts, routed)),
		plan.NewPart(plan.ProxiedPorts(parts)))
	return plan.Merge(parts...)
}

// buildEndpoints returns the plans of the drivers and the attachment of each
// endpoint.
func (e *Engine) buildEndpoints(g *graph, facts plan.Facts) ([]plan.Part, []plan.Attachment) {
	before := e.planned
	e.planned = planned{links: facts.Links, firewalls: facts.Firewalls, ipsec: facts.IPsec,
		networks:  make(map[string]model.Network, len(g.networks)),
		endpoints: make(map[string]*plannedEndpoint, len(g.endpoints))}
	parts := make([]plan.Part, 0, len(g.networks)+len(g.endpoints)+len(g.publishes))
	attachments := make([]plan.Attachment, 0, len(g.endpoints))
	for _, n := range g.networks {
		known, ok := before.networks[n.Name]
		same := ok && known.Equal(*n.Network)
		n.part, e.planned.networks[n.Name] = plan.NewPart(n.driver.Network(*n.Network, facts)), *n.Network
		parts = append(parts, n.part)
		for _, ep := range n.endpoints {
			ep.planned = before.endpoints[ep.Name]
			if !same || ep.planned == nil || !ep.planned.of.Equal(*ep.Endpoint) {
				ep.planned = &plannedEndpoint{*ep.Endpoint,
					plan.NewPart(driver.EndpointPlan(n.driver, *n.Network, *ep.Endpoint)), ep.attachment()}
			}
			ep.at, e.planned.endpoints[ep.Name] = ep.planned.at, ep.planned
			parts, attachments = append(parts, ep.planned.part), append(attachments, *ep.at)
		}
	}
	return parts, attachments
}
