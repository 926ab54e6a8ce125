package metric

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead/internal/gateway/goroutine"
)

// Open counts the requests of one entry point or service that have no complete response yet. A nil
// Open counts nothing.
type Open struct {
	rows [len(methods)]atomic.Pointer[[len(protocols)]progress]
}

// progress counts the requests of one kind.
type progress struct{ begun, ended atomic.Int64 }

// Begin counts a request that begins.
func (o *Open) Begin(k Kind) {
	if o == nil {
		return
	}
	row := &o.rows[k.method]
	if row.Load() == nil {
		row.CompareAndSwap(nil, new([len(protocols)]progress))
	}
	row.Load()[k.protocol].begun.Add(1)
}

// End counts the end of a request that Begin has counted.
func (o *Open) End(k Kind) {
	if o != nil {
		o.rows[k.method].Load()[k.protocol].ended.Add(1)
	}
}

// each calls f for each kind that has had requests.
func (o *Open) each(f func(k Kind, open int64)) {
	for method := range o.rows {
		row := o.rows[method].Load()
		if row == nil {
			continue
		}
		for protocol := range row {
			// In this order, the difference is not negative.
			ended := row[protocol].ended.Load()
			if begun := row[protocol].begun.Load(); begun > 0 {
				f(Kind{uint8(method), uint8(protocol)}, begun-ended)
			}
		}
	}
}

// opens are the open requests of all entry points, or of all services, by name. As in Traefik v2,
// the metric is called open_connections.
type opens struct {
	// mu is that of Metrics. It protects of.
	mu   *sync.Mutex
	of   map[string]*Open
	desc *prometheus.Desc
}

func newOpens(registry *prometheus.Registry, mu *sync.Mutex, kind string) *opens {
	o := &opens{mu, map[string]*Open{}, prometheus.NewDesc("traefik_"+kind+"_open_connections",
		"Requests without a complete response by "+kind+".", []string{"method", "protocol", kind}, nil)}
	registry.MustRegister(o)
	return o
}

// get returns the counters of the object. It returns nil if the settings leave the metric out.
func (o *opens) get(name string) *Open {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of[name] == nil {
		o.of[name] = new(Open)
	}
	return o.of[name]
}

// Describe implements prometheus.Collector.
func (o *opens) Describe(to chan<- *prometheus.Desc) { to <- o.desc }

// Collect implements prometheus.Collector.
func (o *opens) Collect(to chan<- prometheus.Metric) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer goroutine.Recover("collect metrics")
	for name, at := range o.of {
		at.each(func(k Kind, open int64) {
			to <- prometheus.MustNewConstMetric(o.desc, prometheus.GaugeValue, float64(open), methods[k.method],
				protocols[k.protocol], name)
		})
	}
}
