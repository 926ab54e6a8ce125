package suite

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/visitor"
	"fairlead/internal/lab/website"
	"fairlead/internal/model"
)

// sitePaths returns the paths with a web site: four nodes, one or more of them with a
// gateway, and a director if there are several gateways.
func sitePaths() []Path {
	path := func(name, about string, gateways int, p Peer, plane model.Plane, scheduler model.Scheduler) Path {
		return Path{Name: "site:" + name, About: about, Driver: model.DriverHost, Peer: p, Gateways: gateways,
			Plane: plane, Scheduler: scheduler}
	}
	rr := model.RoundRobin
	return []Path{
		path("fairlead-1", "a web site of four nodes behind one of Fairlead's gateways", 1, FairleadGateway, "", ""),
		path("fairlead-4", "a web site of four nodes with one of Fairlead's gateways each, behind a director with "+
			"forward: direct", 4, FairleadGateway, model.PlaneEBPF, rr),
		path("fairlead-4-maglev", "site:fairlead-4 with Maglev hashing in place of round robin", 4, FairleadGateway,
			model.PlaneEBPF, model.MaglevHashing),
		path("fairlead-4-ipvs", "site:fairlead-4 with data plane ipvs", 4, FairleadGateway, model.PlaneIPVS, rr),
		path("traefik-4", "site:fairlead-4 with Traefik 3 as gateways", 4, Traefik, model.PlaneEBPF, rr),
		path("nginx-4", "site:fairlead-4 with nginx as gateways", 4, Nginx, model.PlaneEBPF, rr),
	}
}

// Visits are the visits of a workload.
type Visits struct {
	// Plan describes the schedule. Its Count is 0 if the visits start during the
	// suite's Duration.
	Plan visitor.Plan
	// Pages is the number of pages of the site.
	Pages int
	// Search makes the rate grow until the site cannot carry it.
	Search bool
	// Unchecked makes the director check no gateway.
	Unchecked bool
}

// Replaced means that all gateways are replaced, one after the other: drained,
// stopped, started again.
const Replaced Event = "replaced"

// ordinary is the mix of visitors: most are browsers.
var ordinary = visitor.Mix{Crawl: 1, BrowserH1: 2, BrowserH2: 2}

// siteRate is the rate of visits per second that one gateway with its quota carries.
const siteRate = 10

func atSiteRate(rate float64) *Visits {
	return &Visits{Plan: visitor.Plan{Arrivals: visitor.Poisson, Rate: rate, Mix: ordinary},
		Pages: website.DefaultPages}
}

var (
	visits        = Workload{Name: result.Visiting, Visits: atSiteRate(siteRate)}
	visitsKilled  = Workload{Name: result.Visiting + "-killed", Visits: atSiteRate(siteRate), Event: Killed}
	visitsUpdate  = Workload{Name: result.Visiting + "-update", Visits: atSiteRate(siteRate), Event: Replaced}
	visitsUnknown = Workload{Name: result.Visiting + "-killed-unchecked", Visits: unchecked(), Event: Killed}

	// visitsSeed is the load of the post that the suite quotes: one more client every
	// second, 100 of them, each of which downloads the whole site.
	visitsSeed = Workload{Name: result.Visiting + "-seed", Visits: &Visits{Pages: 120, Plan: visitor.Plan{
		Arrivals: visitor.Fixed, Rate: 1, Count: 100, Mix: visitor.Mix{Crawl: 1}}}}

	knee = Workload{Name: result.Knee, Visits: &Visits{Search: true, Pages: website.DefaultPages,
		Plan: visitor.Plan{Arrivals: visitor.Fixed, Rate: siteRate, Mix: visitor.Mix{BrowserH1: 1, BrowserH2: 1}}}}
)

func unchecked() *Visits {
	v := atSiteRate(siteRate)
	v.Unchecked = true
	return v
}

// maxVisits is the greatest rate of visits per second in a name.
const maxVisits = 1000

// atVisits returns the workload visits-N, with N visits per second.
func atVisits(name string) (Workload, bool) {
	digits, ok := strings.CutPrefix(name, result.Visiting+"-")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || n > maxVisits || name != fmt.Sprintf("%s-%d", result.Visiting, n) {
		return Workload{}, false
	}
	return Workload{Name: name, Visits: atSiteRate(float64(n))}, true
}

// supportsVisits reports whether the workload can be measured on a path with a web
// site. A node can fail or be replaced only if there are others.
func (p Path) supportsVisits(w Workload) bool {
	return w.Visits != nil && (w.Event == "" || p.Gateways > 1)
}

// site returns the suite about a web site under load.
func site() Suite {
	const source = "dockerlab-proxy-performance-and-ipvs"
	figure := func(path string, m result.Metric, v float64, note string) result.Published {
		return result.Published{Source: source, Path: path, Client: result.Remote, Workload: visitsSeed.Name, Metric: m,
			Value: v, Note: note + "; 100 × wget --recursive, one more every second, four Raspberry Pis with Traefik"}
	}
	return Suite{
		Name: "site",
		Question: "How much more load does a web site carry if a director balances over the gateways of all its " +
			"nodes, and what do its visitors notice when a node fails or is updated?",
		Baseline: "site:fairlead-1",
		Paths: []string{"site:fairlead-1", "site:fairlead-4", "site:fairlead-4-maglev", "site:traefik-4",
			"site:nginx-4"},
		Clients:   []result.Client{result.Remote},
		Workloads: []Workload{visits, visitsKilled, visitsUnknown, visitsUpdate, knee},
		Rounds:    5, Duration: 10 * time.Second,
		Published: []result.Published{
			figure("site:fairlead-1", result.RunTime, 396, "one proxy behind an address that can move"),
			figure("site:fairlead-4", result.RunTime, 302, "IPVS with direct routing to four proxies"),
			figure("site:fairlead-1", result.Concurrent, 96, "one proxy"),
			figure("site:fairlead-4", result.Concurrent, 88, "four proxies"),
			figure("site:fairlead-1", result.SlowestProbe, 13.87, "one proxy; slower responses were lost"),
			figure("site:fairlead-4", result.SlowestProbe, 1.2, "four proxies"),
		},
	}
}
