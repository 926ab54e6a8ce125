package visitor

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead/internal/lab/website"
)

// Order is what visitors do.
type Order struct {
	Target netip.AddrPort
	// Host is the name of the site, which its certificate Chain (PEM) must have.
	Host  string
	Chain []byte
	// Pages is the number of the site's pages.
	Pages int
	Plan  Plan
	// Probe makes a probe fetch the small page beside the visits.
	Probe bool
}

// Visits are the results of an order.
type Visits struct {
	// Begin is the time of the begin of the schedule, in ns since 1970.
	Begin int64
	// Visits are sorted by their intended starts. Probes are those of the probe.
	Visits, Probes []Visit
}

// probeGap is the time between two probes.
const probeGap = 100 * time.Millisecond

// delay is the time from the end of the preparations to the first visit.
const delay = 20 * time.Millisecond

func newTourist(o Order) (*tourist, error) {
	if err := o.Plan.Check(); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(o.Chain) {
		return nil, errors.New("the order has no certificate")
	}
	return &tourist{o, website.New(o.Pages), &tls.Config{ServerName: o.Host, RootCAs: roots}}, nil
}

// run makes the visits until all are over, or those that were in progress when over
// was closed.
func (t *tourist) run(over <-chan struct{}) Visits {
	schedule := t.order.Plan.Schedule(t.order.Pages)
	begin := time.Now().Add(delay)
	v := Visits{Begin: begin.UnixNano()}
	var probing sync.WaitGroup
	ended := make(chan struct{})
	if t.order.Probe {
		probing.Go(func() { v.Probes = t.probe(begin, ended) })
	}
	v.Visits = t.start(begin, schedule, over)
	close(ended)
	probing.Wait()
	return v
}

// start starts every visit at its time and waits until they are over.
func (t *tourist) start(begin time.Time, schedule []Start, over <-chan struct{}) []Visit {
	results := make([]Visit, len(schedule))
	var going sync.WaitGroup
	started := 0
	for i, s := range schedule {
		if !sleepUntil(begin.Add(s.At), over) {
			break
		}
		going.Go(func() { results[i] = t.visit(begin, s) })
		started++
	}
	going.Wait()
	return results[:started]
}

// sleepUntil sleeps until a time; it returns false if over is closed before.
func sleepUntil(at time.Time, over <-chan struct{}) bool {
	select {
	case <-over:
		return false
	default:
	}
	wait := time.Until(at)
	if wait <= 0 {
		return true
	}
	select {
	case <-over:
		return false
	case <-time.After(wait):
		return true
	}
}

// probe fetches the small page by schedule until the visits have ended.
func (t *tourist) probe(begin time.Time, ended <-chan struct{}) []Visit {
	var mu sync.Mutex
	var all []Visit
	var going sync.WaitGroup
	for at := time.Duration(0); sleepUntil(begin.Add(at), ended); at += probeGap {
		going.Go(func() {
			r := &record{begin: begin, Visit: Visit{Intended: at, Started: time.Since(begin)}}
			t.inTurn(r, []string{website.Small})
			r.Ended = time.Since(begin)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, r.Visit)
		})
	}
	going.Wait()
	slices.SortFunc(all, func(a, b Visit) int { return cmp.Compare(a.Intended, b.Intended) })
	return all
}
