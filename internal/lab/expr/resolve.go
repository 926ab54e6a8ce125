package expr

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
)

// catalog is what a condition can refer to: the cases, and the metrics of each.
type catalog struct {
	source string
	cases  []result.Case
	holds  func(result.Case, result.Metric) bool
}

// wanted is a figure with resolved selectors; empty fields were not given.
type wanted struct {
	workloads []string
	client    result.Client
	metric    result.Metric
	tool      string
}

// resolve returns the case and the metric of a figure, for the given client if the
// figure names none. found is false if there is no such measurement; err is an
// error in the condition.
func (c catalog) resolve(f *figure, client result.Client) (k result.Case, m result.Metric, found bool, err error) {
	if !slices.ContainsFunc(c.cases, func(k result.Case) bool { return k.Path == f.path }) {
		return k, m, false, c.fault(f.column, "unknown path %q; there are %s", f.path, list(c.cases, pathOf))
	}
	w, err := c.understand(f)
	if err != nil {
		return k, m, false, err
	}
	if w.client == "" {
		w.client = client
	}
	return c.choose(f, w)
}

// understand sorts the selectors by their kind.
func (c catalog) understand(f *figure) (w wanted, err error) {
	for _, s := range f.selectors {
		workloads := c.workloads(s.text)
		metrics := metricsNamed(s.text)
		switch {
		case slices.ContainsFunc(c.cases, func(k result.Case) bool { return string(k.Client) == s.text }):
			err = c.once(s, w.client == "")
			w.client = result.Client(s.text)
		case !result.IsOwn(s.text) && slices.ContainsFunc(c.cases,
			func(k result.Case) bool { return k.Tool == s.text }):
			err = c.once(s, w.tool == "")
			w.tool = s.text
		case len(workloads) > 0:
			err = c.once(s, w.workloads == nil)
			w.workloads = workloads
		case len(metrics) == 1:
			err = c.once(s, w.metric == "")
			w.metric = metrics[0]
		case len(metrics) > 1:
			err = c.fault(s.column, "%q is ambiguous: it could be %s", s.text, join(metrics))
		default:
			err = c.unknown(s)
		}
		if err != nil {
			return w, err
		}
	}
	return w, nil
}

// choose returns the only case that matches. It returns an error if several do.
func (c catalog) choose(f *figure, w wanted) (k result.Case, m result.Metric, found bool, err error) {
	var all []result.Case
	for _, k := range c.cases {
		if k.Path == f.path && k.Client == w.client &&
			(w.tool == "" && result.IsOwn(k.Tool) || k.Tool == w.tool) &&
			(w.workloads == nil || slices.Contains(w.workloads, k.Workload)) {
			all = append(all, k)
		}
	}
	if w.metric != "" {
		all = c.holding(all, w.metric, w.workloads == nil)
	}
	if len(all) == 0 {
		return k, m, false, nil
	}
	if len(all) > 1 {
		return k, m, false, c.fault(f.column, "%s is ambiguous; add one of %s", f.text, list(all, workloadOf))
	}
	if w.metric == "" {
		w.metric = result.Main(all[0].Workload)
	}
	return all[0], w.metric, c.holds(all[0], w.metric), nil
}

// holding returns the cases that have a metric. If preferMain, those whose main
// metric it is are preferred, and of these the ones that are not under load.
func (c catalog) holding(all []result.Case, m result.Metric, preferMain bool) []result.Case {
	all = slices.DeleteFunc(all, func(k result.Case) bool { return !c.holds(k, m) })
	main := slices.DeleteFunc(slices.Clone(all), func(k result.Case) bool {
		return result.Main(k.Workload) != m || result.Loaded(k.Workload)
	})
	if preferMain && len(main) > 0 {
		return main
	}
	return all
}

// workloads returns the workloads that a selector may mean: the one of that name or,
// if there is none, every one whose name has that prefix. A short name such as bulk
// means its kind.
func (c catalog) workloads(text string) []string {
	kinds := map[string]string{"bulk": "tcp-bulk", "rr": "tcp-rr", "crr": "tcp-crr", "pps": "udp-pps"}
	if kind := kinds[text]; kind != "" {
		text = kind
	}
	var begins []string
	for _, k := range c.cases {
		if k.Workload == text {
			return []string{text}
		}
		if strings.HasPrefix(k.Workload, text) {
			begins = append(begins, k.Workload)
		}
	}
	return begins
}

// metricsNamed returns the metric of that name, or all with that prefix.
func metricsNamed(text string) []result.Metric {
	var all []result.Metric
	for m := range result.Units {
		if string(m) == text {
			return []result.Metric{m}
		}
		if strings.HasPrefix(string(m), text) {
			all = append(all, m)
		}
	}
	slices.Sort(all)
	return all
}

func (c catalog) fault(column int, format string, args ...any) error {
	return &Error{c.source, column, fmt.Sprintf(format, args...)}
}

// once returns an error for a second selector of the same kind.
func (c catalog) once(s word, first bool) error {
	if first {
		return nil
	}
	return c.fault(s.column,
		"%q is the second selector of its kind: want at most one workload, one client, one metric and one tool",
		s.text)
}

func (c catalog) unknown(s word) error {
	return c.fault(s.column,
		"unknown selector or field %q; there are the workloads %s, the clients %s, the metrics %s and the fields %s",
		s.text, list(c.cases, workloadOf), list(c.cases, clientOf), join(metricsNamed("")), strings.Join(fields, ", "))
}

func pathOf(k result.Case) string     { return k.Path }
func workloadOf(k result.Case) string { return k.Workload }
func clientOf(k result.Case) string   { return string(k.Client) }

// list returns the distinct names of the cases.
func list(cases []result.Case, name func(result.Case) string) string {
	var all []string
	for _, k := range cases {
		if n := name(k); !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return strings.Join(all, ", ")
}

func join(metrics []result.Metric) string {
	var all []string
	for _, m := range metrics {
		all = append(all, string(m))
	}
	return strings.Join(all, ", ")
}
