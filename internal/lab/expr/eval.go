package expr

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
)

// Check checks the condition's names against the cases that will be measured, so that
// a misspelt name is found before the measurements. Returns an *[Error] for a name that
// is unknown, ambiguous or not measured.
func (e *Expr) Check(cases []result.Case) error {
	c := catalog{source: e.source, holds: expected,
		cases: result.Distinct(cases, func(k result.Case) result.Case { return k })}
	return e.forClients(c, func(figures map[*figure]chosen) error {
		for f, want := range figures {
			if result.Absolute(want.metric) && slices.Contains(relative, f.field) {
				return c.fault(f.column, "%s: %s is not compared with a baseline; want value, worst, low or high",
					f.text, want.metric)
			}
			if _, err := e.pastOf(f, want); err != nil {
				return err
			}
		}
		return nil
	})
}

// relative are the fields that exist only for metrics with a ratio.
var relative = []string{"ratio", "ratio_low", "ratio_high", "ratio_session_low", "ratio_session_high", "p", "noise"}

// Eval evaluates the condition on a report. failed is true if the condition is true
// for some client; the explanation contains the figures. Returns an *[Error] for a name
// that is unknown, ambiguous or not measured, and another error if a figure has no
// valid round.
func (e *Expr) Eval(r *result.Report) (failed bool, explanation string, err error) {
	if err := e.unavailable(r); err != nil {
		return false, "", err
	}
	c := catalogOf(e.source, r)
	var why []string
	err = e.forClients(c, func(figures map[*figure]chosen) error {
		values, err := e.readings(r, figures)
		if err == nil {
			failed = e.root.value(values, &why) == 1 || failed
		}
		return err
	})
	if err != nil {
		return false, "", err
	}
	return failed, strings.Join(why, "; "), nil
}

// chosen is the row that a figure refers to.
type chosen struct {
	result.Case
	metric result.Metric
}

// forClients resolves all figures for each client in turn and calls use once per
// choice of rows. It skips clients for which a figure was not measured, but fails
// if it would skip all of them.
func (e *Expr) forClients(c catalog, use func(map[*figure]chosen) error) error {
	var seen []map[*figure]chosen
	var missing *figure
	for _, client := range result.Distinct(c.cases, func(k result.Case) result.Client { return k.Client }) {
		figures, absent, err := e.resolveAll(c, client)
		if err != nil {
			return err
		}
		if absent != nil {
			missing = absent
			continue
		}
		if slices.ContainsFunc(seen, func(old map[*figure]chosen) bool { return maps.Equal(old, figures) }) {
			continue
		}
		seen = append(seen, figures)
		if err := use(figures); err != nil {
			return err
		}
	}
	switch {
	case len(seen) > 0:
		return nil
	case missing == nil:
		return errors.New("evaluate condition: the session has no measurements")
	}
	return c.fault(missing.column, "%s is not measured; there are the workloads %s for the clients %s",
		missing.text, list(c.cases, workloadOf), list(c.cases, clientOf))
}

// resolveAll resolves every figure; absent is a figure that was not measured.
func (e *Expr) resolveAll(c catalog, client result.Client) (figures map[*figure]chosen, absent *figure, err error) {
	figures = map[*figure]chosen{}
	for _, f := range e.root.figures() {
		k, m, found, err := c.resolve(f, client)
		switch {
		case err != nil:
			return nil, nil, err
		case !found:
			absent = f
		}
		figures[f] = chosen{k, m}
	}
	return figures, absent, nil
}

// unavailable returns an error for a path that could not be built, so that a
// session without its figures does not pass.
func (e *Expr) unavailable(r *result.Report) error {
	for _, f := range e.root.figures() {
		for _, u := range r.Unavailable {
			if u.Path == f.path {
				return &Error{e.source, f.column, fmt.Sprintf("path %q is not available on this host: %s", f.path,
					u.Reason)}
			}
		}
	}
	return nil
}

// readings reads the chosen rows.
func (e *Expr) readings(r *result.Report, figures map[*figure]chosen) (map[*figure]reading, error) {
	values := map[*figure]reading{}
	for f, want := range figures {
		at := slices.IndexFunc(r.Summary, func(s result.Summary) bool {
			return s.Case == want.Case && s.Metric == want.metric
		})
		row := r.Summary[at]
		counts := f.field == "rounds" || f.field == "invalid"
		switch {
		case row.Rounds == 0 && !counts:
			return nil, fmt.Errorf("evaluate %s: all %d rounds were discarded: see the report for the reasons",
				f.text, row.Invalid)
		case row.Baseline == "" && strings.HasPrefix(f.field, "ratio"):
			return nil, fmt.Errorf("evaluate %s: there is no ratio: %s", f.text, cmp.Or(row.Lacks,
				"the session has no baseline"))
		case row.Lacks != "" && strings.HasPrefix(f.field, "ratio_") && fieldOf(row, f.field) == 0:
			return nil, fmt.Errorf("evaluate %s: %s", f.text, row.Lacks)
		}
		past, err := e.pastOf(f, want)
		if err != nil {
			return nil, err
		}
		values[f] = reading{fieldOf(row, f.field), row, past}
	}
	return values, nil
}

// pastOf returns the values of a figure in earlier sessions, if the condition refers to
// them. Returns an *[Error] if there are too few.
func (e *Expr) pastOf(f *figure, of chosen) ([]float64, error) {
	if !f.past {
		return nil, nil
	}
	var values []float64
	if e.past != nil {
		for _, row := range e.past(of.Case, of.metric) {
			values = append(values, fieldOf(row, f.field))
		}
	}
	if len(values) < f.fewest {
		return nil, &Error{e.source, f.column, fmt.Sprintf("the history has %d earlier sessions with %s, want %d: record "+
			"sessions of this suite on this machine with `fairlead lab run --history`", len(values), f.text, f.fewest)}
	}
	return values, nil
}

func fieldOf(s result.Summary, field string) float64 {
	return map[string]float64{
		"value": s.Value, "low": s.Low, "high": s.High, "worst": s.Worst,
		"ratio": s.Ratio, "ratio_low": s.RatioLow, "ratio_high": s.RatioHigh,
		"ratio_session_low": s.SessionLow, "ratio_session_high": s.SessionHigh,
		"p": s.P, "noise": s.Noise, "rounds": float64(s.Rounds), "invalid": float64(s.Invalid),
	}[field]
}

// catalogOf returns the catalog of a report's figures.
func catalogOf(source string, r *result.Report) catalog {
	c := catalog{source: source,
		cases: result.Distinct(r.Summary, func(s result.Summary) result.Case { return s.Case })}
	c.holds = func(k result.Case, m result.Metric) bool {
		return slices.ContainsFunc(r.Summary, func(s result.Summary) bool { return s.Case == k && s.Metric == m })
	}
	return c
}

// expected reports whether a workload will have a metric, which depends on the tool
// that drives it.
func expected(k result.Case, m result.Metric) bool {
	kind := result.Kind(k.Workload)
	oneByOne := strings.HasSuffix(kind, "-rr") || kind == "tcp-crr" || kind == result.UDPQuery
	loaded := result.Loaded(k.Workload)
	switch m {
	case result.Throughput, result.CPUPerGB, result.Efficiency:
		return strings.HasSuffix(kind, "-bulk") || loaded
	case result.LatencyP50, result.LatencyP99:
		return oneByOne && k.Tool != "qperf" && k.Tool != "h2load"
	case result.LatencyMean:
		return oneByOne && (result.IsOwn(k.Tool) || k.Tool == "qperf" || k.Tool == "h2load")
	case result.TransactionRate:
		return (strings.HasSuffix(kind, "-rr") || kind == result.UDPQuery) && !loaded &&
			(result.IsOwn(k.Tool) || k.Tool == "wrk")
	case result.ConnectionRate:
		return kind == "tcp-crr" || kind == result.PortExhaustion
	case result.PacketRate:
		return kind == "udp-pps"
	case result.Loss:
		return kind == "udp-bulk" || kind == "udp-pps"
	case result.StartTime, result.RunTime, result.Memory, result.PublishMemory:
		return kind == result.DockerRun
	case result.SlowestRequest:
		return kind == result.Failover || kind == result.VIP
	case result.FailedConnects:
		return kind == result.VIP || kind == result.PortExhaustion
	case result.CompletedConnects:
		return kind == result.PortExhaustion
	case result.FailoverTime, result.Overlap:
		return kind == result.VIP
	case result.Requests, result.FailedRequests, result.NoticeTime, result.RecoveryTime, result.ReturnTime:
		return kind == result.Failover
	case result.CPUPerOp:
		return (oneByOne && !loaded || kind == "udp-pps" || kind == result.PortExhaustion) &&
			k.Tool != "qperf" && k.Tool != "sockperf"
	}
	return kind != result.DockerRun && kind != result.Failover && kind != result.VIP
}
