package visitor

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Kind is a kind of visitor.
type Kind string

// The kinds of visitors.
const (
	Crawl     Kind = "crawl"
	BrowserH1 Kind = "browser-h1"
	BrowserH2 Kind = "browser-h2"
)

// Arrivals is how the starts of visits are distributed over time.
type Arrivals string

// The distributions: equal distances, and a Poisson process.
const (
	Fixed   Arrivals = "fixed"
	Poisson Arrivals = "poisson"
)

// Mix has how many of the visitors are of each kind, relative to each other.
type Mix struct{ Crawl, BrowserH1, BrowserH2 int }

// Plan describes a schedule.
type Plan struct {
	Arrivals Arrivals
	// Rate is the number of visits that start per second.
	Rate float64
	// Count is the number of visits.
	Count int
	Mix   Mix
	Seed  uint64
}

// maxCount is the greatest number of visits of a plan.
const maxCount = 10_000_000

// Check returns an error if there is no schedule for the plan.
func (p Plan) Check() error {
	switch {
	case p.Arrivals != Fixed && p.Arrivals != Poisson:
		return fmt.Errorf("arrivals %q: want %s or %s", p.Arrivals, Fixed, Poisson)
	case p.Rate <= 0:
		return fmt.Errorf("%v visits per second: want more than 0", p.Rate)
	case p.Count < 1 || p.Count > maxCount:
		return fmt.Errorf("%d visits: want 1 to %d", p.Count, maxCount)
	case p.Mix.Crawl < 0 || p.Mix.BrowserH1 < 0 || p.Mix.BrowserH2 < 0 || p.Mix.total() == 0:
		return fmt.Errorf("mix %+v: want at least one kind of visitor", p.Mix)
	}
	return nil
}

func (m Mix) total() int { return m.Crawl + m.BrowserH1 + m.BrowserH2 }

func (m Mix) pick(n int) Kind {
	switch {
	case n < m.Crawl:
		return Crawl
	case n < m.Crawl+m.BrowserH1:
		return BrowserH1
	}
	return BrowserH2
}

// Start is one visit of a schedule.
type Start struct {
	// At is the time from the begin of the schedule.
	At   time.Duration
	Kind Kind
	// Page is the number of the page that a browser opens.
	Page int
}

// Schedule returns the visits of the plan to a site with that number of pages. The
// same plan always gives the same schedule.
func (p Plan) Schedule(pages int) []Start {
	random := rand.New(rand.NewPCG(p.Seed, 2))
	gap := float64(time.Second) / p.Rate
	all := make([]Start, p.Count)
	at := 0.0
	for i := range all {
		all[i] = Start{At: time.Duration(at), Kind: p.Mix.pick(random.IntN(p.Mix.total())), Page: random.IntN(pages)}
		if p.Arrivals == Poisson {
			at += gap * random.ExpFloat64()
		} else {
			at = gap * float64(i+1)
		}
	}
	return all
}
