package metrics

import (
	"fairlead/internal/kernel"

	dto "github.com/prometheus/client_model/go"
)

// families builds the metrics of one scrape. They are the library's own
// messages without its Registry, which takes five times as long to check what
// is right by construction: every series of ours has a name of its own.
type families struct {
	byName map[string]*dto.MetricFamily
	order  []*dto.MetricFamily
	// series and pairs are made many at a time.
	series []series
	pairs  []dto.LabelPair
}

// series is a metric with its value.
type series struct {
	metric  dto.Metric
	counter dto.Counter
	gauge   dto.Gauge
	value   float64
}

// slab is how many are made at a time.
const slab = 256

func newFamilies() *families { return &families{byName: map[string]*dto.MetricFamily{}} }

func (f *families) all() []*dto.MetricFamily { return f.order }

// family returns that of a metric.
func (f *families) family(m Metric) *dto.MetricFamily {
	if known := f.byName[m.Name]; known != nil {
		return known
	}
	kind := dto.MetricType_COUNTER
	if m.Type == "gauge" {
		kind = dto.MetricType_GAUGE
	}
	fresh := &dto.MetricFamily{Name: &m.Name, Help: &m.Help, Type: &kind}
	f.byName[m.Name] = fresh
	f.order = append(f.order, fresh)
	return fresh
}

// add adds a series.
func (f *families) add(m Metric, value float64, labels []*dto.LabelPair) {
	if len(f.series) == 0 {
		f.series = make([]series, slab)
	}
	s := &f.series[0]
	f.series = f.series[1:]
	s.value, s.metric.Label = value, labels
	to := f.family(m)
	if to.GetType() == dto.MetricType_GAUGE {
		s.gauge.Value, s.metric.Gauge = &s.value, &s.gauge
	} else {
		s.counter.Value, s.metric.Counter = &s.value, &s.counter
	}
	to.Metric = append(to.Metric, &s.metric)
}

// labels pairs names with values.
func (f *families) labels(names []string, values ...string) []*dto.LabelPair {
	all := make([]*dto.LabelPair, 0, len(names)+1)
	for i := range values {
		if len(f.pairs) == 0 {
			f.pairs = make([]dto.LabelPair, slab)
		}
		p := &f.pairs[0]
		f.pairs = f.pairs[1:]
		p.Name, p.Value = &names[i], &values[i]
		all = append(all, p)
	}
	return all
}

// directions are the labels of a count in each direction.
type directions struct{ in, out []*dto.LabelPair }

// plain are the labels without a direction.
func (w directions) plain() []*dto.LabelPair { return w.in[:len(w.in)-1] }

func (f *families) bothDirections(names []string, values ...string) directions {
	plain := f.labels(names, values...)
	plain = plain[:len(plain):len(plain)]
	direction := []string{labelDirection}
	return directions{append(plain, f.labels(direction, "in")...), append(plain, f.labels(direction, "out")...)}
}

// both adds a count in each direction.
func (f *families) both(m Metric, n kernel.InOut, of directions) {
	f.add(m, float64(n.In), of.in)
	f.add(m, float64(n.Out), of.out)
}
