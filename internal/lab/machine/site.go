package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/site"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/lab/visitor"
)

// The limits of an order for visits: the number of visits, so that their results fit
// into a message, and the number of pages.
const (
	MaxVisits = 10_000
	maxPages  = 1_000
)

// Sites are the parts of paths with a web site. Every Part implements it.
type Sites interface {
	// OpenSite builds the web site of a workload of the order on the server's part.
	// CountSite reads its counters, and CloseSite removes it.
	OpenSite(ctx context.Context, workload string) (site.Entry, error)
	CountSite(ctx context.Context) (site.Counters, error)
	CloseSite(ctx context.Context) error
	// Visit makes visits from the client's part and returns when all are over.
	Visit(ctx context.Context, o visitor.Order) (visitor.Visits, error)
}

// checkInterval is the time between two health checks of a gateway.
const checkInterval = time.Second

// OpenSite implements Sites.
func (p *part) OpenSite(ctx context.Context, workload string) (e site.Entry, err error) {
	i := slices.IndexFunc(p.suite.Workloads, func(w suite.Workload) bool { return w.Name == workload })
	switch {
	case i < 0 || p.suite.Workloads[i].Visits == nil || p.rig.Path.Gateways == 0:
		return e, fmt.Errorf("build a web site: workload %q makes no visits, or path %s has no site", workload,
			p.rig.Path.Name)
	case p.site != nil || p.rig.World == nil || !p.hasServer():
		return e, errors.New("build a web site: one exists already, or the part has no server")
	case p.rig.Groups == nil:
		return e, site.ErrNoGroups
	}
	p.site, err = site.New(ctx, site.Options{Path: p.rig.Path, Facts: p.rig.Facts, Groups: p.rig.Groups,
		Pages: p.suite.Workloads[i].Visits.Pages, Interval: checkInterval, Router: p.rig.World})
	if err != nil {
		return e, err
	}
	return p.site.Entry(), nil
}

// CountSite implements Sites.
func (p *part) CountSite(context.Context) (site.Counters, error) {
	if p.site == nil {
		return site.Counters{}, errors.New("read the counters of a web site: there is none")
	}
	return p.site.Count()
}

// CloseSite implements Sites.
func (p *part) CloseSite(context.Context) error {
	if p.site == nil {
		return nil
	}
	err := p.site.Close()
	p.site = nil
	return err
}

// Visit implements Sites.
func (p *part) Visit(ctx context.Context, o visitor.Order) (visitor.Visits, error) {
	if p.rig.World == nil || !p.rig.World.Part().HasClient() {
		return visitor.Visits{}, errors.New("visit a web site: the part has no client")
	}
	if err := checkVisits(o); err != nil {
		return visitor.Visits{}, fmt.Errorf("visit a web site: %w", err)
	}
	if err := p.rig.World.DoClient(topology.MorePorts); err != nil {
		return visitor.Visits{}, fmt.Errorf("visit a web site: %w", err)
	}
	return visitor.Run(ctx, o, p.rig.ClientPlace(result.Remote))
}

// checkVisits returns an error for an order that no workload makes.
func checkVisits(o visitor.Order) error {
	switch {
	case o.Plan.Check() != nil:
		return o.Plan.Check()
	case o.Plan.Count > MaxVisits:
		return fmt.Errorf("%d visits: between two machines, one schedule has at most %d: use a lower rate or a shorter "+
			"--duration", o.Plan.Count, MaxVisits)
	case o.Pages < 1 || o.Pages > maxPages:
		return fmt.Errorf("%d pages: want 1 to %d", o.Pages, maxPages)
	case Lasts(o.Plan) > maxSeconds*time.Second:
		return fmt.Errorf("the visits start during %s: want at most %d s", Lasts(o.Plan), maxSeconds)
	}
	return nil
}

// Lasts returns for how long visits of a plan start.
func Lasts(p visitor.Plan) time.Duration {
	return time.Duration(min(float64(p.Count)/p.Rate, 2*maxSeconds) * float64(time.Second))
}
