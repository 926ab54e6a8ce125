package stats

import (
	"math"
	"slices"
)

// estimate is the mean of observations that were made in one or more sessions, with two
// 95 % intervals.
type estimate struct {
	// mean is the mean of the sessions' means, so that each session has the same weight.
	mean float64
	// low and high are the interval within these sessions: the mean of more rounds in
	// the same sessions would be in it.
	low, high float64
	// sessions are the means of the sessions. sessionLow and sessionHigh are the
	// interval with the session component: the mean of more sessions would be in it. For
	// fewer than two sessions it does not exist, and both are the mean.
	sessions                []float64
	sessionLow, sessionHigh float64
}

// estimateOf returns the estimate of observations, each with the number of its session.
//
// Rounds of one session share their topology and what depends on it (addresses, queues,
// placement in memory), so they are not independent observations of what another session
// would measure. Sessions are the outer sampling unit. Their means are independent, and the
// scatter of these means contains that of the rounds. So the interval with the session
// component is that of a mean of N independent values: Student's with N-1 degrees of freedom
// for few sessions, and the bootstrap that resamples whole sessions for more
// ([meanInterval]). It is the interval at the highest level of repetition of Kalibera and
// Jones, "Rigorous Benchmarking in Reasonable Time" (ISMM 2013), and the resampling of Davison and
// Hinkley, "Bootstrap Methods and their Application" (1997), section 3.8.
func estimateOf(xs []float64, sessions []int, seed [2]uint64) estimate {
	groups := bySession(xs, sessions)
	if len(groups) < 2 {
		e := estimate{mean: mean(xs), sessions: []float64{mean(xs)}}
		e.low, e.high = meanInterval(xs, seed)
		e.sessionLow, e.sessionHigh = e.mean, e.mean
		return e
	}
	var e estimate
	for _, g := range groups {
		e.sessions = append(e.sessions, mean(g))
	}
	e.mean = mean(e.sessions)
	half := withinError(groups)
	e.low, e.high = e.mean-half, e.mean+half
	e.sessionLow, e.sessionHigh = meanInterval(e.sessions, seed)
	return e
}

// bySession returns the observations of each session, in the order of the sessions.
func bySession(xs []float64, sessions []int) [][]float64 {
	var order []int
	all := map[int][]float64{}
	for i, n := range sessions {
		if all[n] == nil {
			order = append(order, n)
		}
		all[n] = append(all[n], xs[i])
	}
	slices.Sort(order)
	var groups [][]float64
	for _, n := range order {
		groups = append(groups, all[n])
	}
	return groups
}

// withinError returns half of the width of Student's interval for the mean of the groups'
// means, from the scatter within the groups alone; 0 if no group has two observations.
func withinError(groups [][]float64) float64 {
	squares, freedom, share := 0.0, 0, 0.0
	for _, g := range groups {
		m := mean(g)
		for _, x := range g {
			squares += (x - m) * (x - m)
		}
		freedom += len(g) - 1
		share += 1 / float64(len(g))
	}
	if freedom == 0 {
		return 0
	}
	variance := squares / float64(freedom) * share / float64(len(groups)*len(groups))
	return student(freedom+1) * math.Sqrt(variance)
}

// estimate returns the estimate of a path's mean logarithm.
func (f family) estimate(s series, seed uint64) estimate {
	return estimateOf(s.logs, s.sessions, f.seed(seed, s.path))
}

// tested returns the independent observations of which tests compute p-values: the means of
// the sessions or, within one session, the rounds.
func (s series) tested() []float64 {
	groups := bySession(s.logs, s.sessions)
	if len(groups) < 2 {
		return s.logs
	}
	var means []float64
	for _, g := range groups {
		means = append(means, mean(g))
	}
	return means
}

// severalSessions reports whether the group was measured in more than one session.
func (g *group) severalSessions() bool {
	first, seen := 0, false
	for at := range g.rounds {
		if seen && at.session != first {
			return true
		}
		first, seen = at.session, true
	}
	return false
}

// sessionsOf counts the sessions in which a series has a valid round; 0 in a report of one
// session.
func (f family) sessionsOf(s series) int {
	if !f.severalSessions() {
		return 0
	}
	return len(bySession(s.logs, s.sessions))
}
