package metrics

import (
	"fairlead/internal/kernel/counter"

	dto "github.com/prometheus/client_model/go"
)

// families builds the metrics of one scrape. It uses the library's messages without
// its Registry. The Registry takes five times as long, because it checks for
// duplicate series, and there are none by construction.
type families struct {
	byName map[string]*dto.MetricFamily
	order  []*dto.MetricFamily
	// series and pairs are allocated in slabs.
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

// slab is the number of elements that are allocated at a time.
const slab = 256

func newFamilies() *families { return &families{byName: map[string]*dto.MetricFamily{}} }

func (f *families) all() []*dto.MetricFamily { return f.order }

// family returns the family of a metric, and adds it if it is new.
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

// directions are the labels of a counter for each direction.
type directions struct{ in, out []*dto.LabelPair }

// plain returns the labels without the direction.
func (w directions) plain() []*dto.LabelPair { return w.in[:len(w.in)-1] }

func (f *families) bothDirections(names []string, values ...string) directions {
	plain := f.labels(names, values...)
	plain = plain[:len(plain):len(plain)]
	direction := []string{labelDirection}
	return directions{append(plain, f.labels(direction, "in")...), append(plain, f.labels(direction, "out")...)}
}

// both adds the series of a counter for both directions.
func (f *families) both(m Metric, n counter.InOut, of directions) {
	f.add(m, float64(n.In), of.in)
	f.add(m, float64(n.Out), of.out)
}
