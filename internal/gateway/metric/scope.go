package metric

import (
	"crypto/tls"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scope has the metrics of entry points, of routers or of services. A nil scope counts nothing.
type scope struct {
	// names are the labels that name an object: one, and the service of a router.
	names                               []string
	requests, received, sent, encrypted *prometheus.CounterVec
	duration                            *prometheus.HistogramVec
	// retries is nil but for services.
	retries *prometheus.CounterVec
	// known has the counters of each object by class. The class of a router's counters has the
	// service of the router.
	known map[string]map[class]*counters
}

// counters are those of an object for a class.
type counters struct {
	requests, received, sent prometheus.Counter
	// encrypted is nil without TLS, retries but for services.
	encrypted, retries prometheus.Counter
	duration           prometheus.Observer
}

// newScope registers the metrics of one kind of objects. names are the labels that name an object.
func newScope(registry *prometheus.Registry, kind string, buckets []float64, names ...string) *scope {
	s := &scope{names: names, known: map[string]map[class]*counters{}}
	all := append([]string{"code", "method", "protocol"}, names...)
	counter := func(name, help string, labels []string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "traefik_" + kind + "_" + name,
			Help: help + " by " + kind + "."}, labels)
		registry.MustRegister(v)
		return v
	}
	s.requests = counter("requests_total", "Requests", all)
	s.received = counter("requests_bytes_total", "Bytes of request bodies", all)
	s.sent = counter("responses_bytes_total", "Bytes of response bodies", all)
	s.encrypted = counter("requests_tls_total", "Requests with TLS",
		append([]string{"tls_version", "tls_cipher"}, names...))
	s.duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "traefik_" + kind +
		"_request_duration_seconds", Help: "Duration of requests by " + kind + ".", Buckets: buckets}, all)
	registry.MustRegister(s.duration)
	if kind == "service" {
		s.retries = counter("retries_total", "Requests that were sent again", names)
	}
	return s
}

// of returns the counters of the object for a class. The caller has the lock.
func (s *scope) of(name, service string, c class) *counters {
	if s == nil {
		return nil
	}
	c.service = service
	if found := s.known[name][c]; found != nil {
		return found
	}
	labels := s.labels(name, c)
	at := &counters{requests: s.requests.WithLabelValues(labels...), received: s.received.WithLabelValues(labels...),
		sent: s.sent.WithLabelValues(labels...), duration: s.duration.WithLabelValues(labels...)}
	if c.version != 0 {
		at.encrypted = s.encrypted.WithLabelValues(s.tlsLabels(name, c)...)
	}
	if s.retries != nil {
		at.retries = s.retries.WithLabelValues(name)
	}
	if s.known[name] == nil {
		s.known[name] = map[class]*counters{}
	}
	s.known[name][c] = at
	return at
}

// remove removes the metrics of the object for the classes that are gone. The caller has the lock.
func (s *scope) remove(name string, gone func(class) bool) {
	if s == nil {
		return
	}
	for c := range s.known[name] {
		if !gone(c) {
			continue
		}
		labels := s.labels(name, c)
		s.requests.DeleteLabelValues(labels...)
		s.received.DeleteLabelValues(labels...)
		s.sent.DeleteLabelValues(labels...)
		s.duration.DeleteLabelValues(labels...)
		s.encrypted.DeleteLabelValues(s.tlsLabels(name, c)...)
		if s.retries != nil {
			s.retries.DeleteLabelValues(name)
		}
		delete(s.known[name], c)
	}
	if len(s.known[name]) == 0 {
		delete(s.known, name)
	}
}

func (s *scope) objectLabels(name string, c class) []string {
	if len(s.names) == 1 {
		return []string{name}
	}
	return []string{name, c.service}
}

// labels are the values of code, method and protocol, and of the object's labels.
func (s *scope) labels(name string, c class) []string {
	return append([]string{strconv.Itoa(int(c.status)), methods[c.method], protocols[c.protocol]},
		s.objectLabels(name, c)...)
}

// tlsLabels are the values of tls_version and tls_cipher, and of the object's labels.
func (s *scope) tlsLabels(name string, c class) []string {
	return append([]string{TLSVersion(c.version), tls.CipherSuiteName(c.suite)}, s.objectLabels(name, c)...)
}

func (c *counters) count(r *Request, took time.Duration) {
	if c == nil {
		return
	}
	c.requests.Inc()
	if r.Received > 0 {
		c.received.Add(float64(r.Received))
	}
	if r.Sent > 0 {
		c.sent.Add(float64(r.Sent))
	}
	if c.encrypted != nil {
		c.encrypted.Inc()
	}
	c.duration.Observe(took.Seconds())
}
