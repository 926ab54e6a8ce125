package visitor

import (
	"cmp"
	"math"
	"slices"
	"time"

	"fairlead/internal/lab/result"
)

// Describe returns what the visits of a run are, without counters of hosts, and the
// failures per reason.
func (v Visits) Describe() (*result.Site, map[string]int) {
	s := &result.Site{Visits: len(v.Visits)}
	failed := map[string]int{}
	var took, first, probes, late []float64
	last := time.Duration(0)
	for _, x := range v.Visits {
		s.Requests, s.FailedRequests = s.Requests+x.Requests, s.FailedRequests+x.Failed
		s.Bytes += uint64(x.Bytes)
		late = append(late, (x.Started - x.Intended).Seconds())
		last = max(last, x.Intended)
		if x.First > 0 {
			first = append(first, (x.First - x.Intended).Seconds())
		}
		if x.Err != "" {
			s.Failed++
			failed[x.Err]++
			continue
		}
		took = append(took, x.Took().Seconds())
	}
	for _, p := range v.Probes {
		s.Bytes += uint64(p.Bytes)
		if p.Err == "" {
			probes = append(probes, p.Took().Seconds())
		} else {
			failed["probe: "+p.Err]++
		}
	}
	s.Visit, s.FirstByte, s.Probe = times(took), times(first), times(probes)
	s.LatenessP99 = times(late).P99
	s.Drain = (v.Ended() - last).Seconds()
	for _, c := range v.course() {
		s.Concurrent = max(s.Concurrent, c.going)
	}
	s.Samples = v.samples()
	return s, failed
}

// times returns the percentiles of some times, which it sorts.
func times(all []float64) result.Times {
	if len(all) == 0 {
		return result.Times{}
	}
	slices.Sort(all)
	at := func(share float64) float64 { return all[max(0, int(math.Ceil(share*float64(len(all))))-1)] }
	return result.Times{P50: at(0.5), P95: at(0.95), P99: at(0.99), Max: all[len(all)-1]}
}

// Ended returns the time from the begin to the end of the last visit.
func (v Visits) Ended() time.Duration {
	ended := time.Duration(0)
	for _, x := range v.Visits {
		ended = max(ended, x.Ended)
	}
	return ended
}

// change is the number of visits in progress from a time on.
type change struct {
	at    time.Duration
	going int
}

// course returns every change of the number of visits in progress. A visit is in
// progress from its intended start on.
func (v Visits) course() []change {
	var all []change
	for _, x := range v.Visits {
		all = append(all, change{x.Intended, 1}, change{x.Ended, -1})
	}
	slices.SortFunc(all, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.going, b.going))
	})
	for i := 1; i < len(all); i++ {
		all[i].going += all[i-1].going
	}
	return all
}

// maxSamples is the greatest number of samples of a run.
const maxSamples = 300

// samples returns the course of the run at equal distances of at least the probe's.
func (v Visits) samples() []result.SiteSample {
	ended := v.Ended()
	gap := max(probeGap, (ended/maxSamples).Truncate(probeGap)+probeGap)
	course, probes := v.course(), v.Probes
	going := 0
	var all []result.SiteSample
	for at := time.Duration(0); at < ended+gap; at += gap {
		for len(course) > 0 && course[0].at <= at {
			going, course = course[0].going, course[1:]
		}
		s := result.SiteSample{At: at.Seconds(), Concurrent: going}
		for len(probes) > 0 && probes[0].Intended <= at {
			if probes[0].Err != "" {
				s.Lost++
			} else {
				s.Probe = max(s.Probe, probes[0].Took().Seconds())
			}
			probes = probes[1:]
		}
		all = append(all, s)
	}
	return all
}

// Slope returns by how many visits per second the number of visits in progress grows
// while visits start: the slope of the least-squares line through samples of it. The
// first quarter of the time is left out, in which the number grows up to its mean.
func (v Visits) Slope() float64 {
	last := time.Duration(0)
	for _, x := range v.Visits {
		last = max(last, x.Intended)
	}
	const points = 200
	course, going := v.course(), 0
	var xs, ys []float64
	for i := range points {
		at := last/4 + time.Duration(i)*(last-last/4)/points
		for len(course) > 0 && course[0].at <= at {
			going, course = course[0].going, course[1:]
		}
		xs, ys = append(xs, at.Seconds()), append(ys, float64(going))
	}
	return slope(xs, ys)
}

func slope(xs, ys []float64) float64 {
	var x, y float64
	for i := range xs {
		x, y = x+xs[i]/float64(len(xs)), y+ys[i]/float64(len(ys))
	}
	var over, under float64
	for i := range xs {
		over += (xs[i] - x) * (ys[i] - y)
		under += (xs[i] - x) * (xs[i] - x)
	}
	if under == 0 {
		return 0
	}
	return over / under
}
