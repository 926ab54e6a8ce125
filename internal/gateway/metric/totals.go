package metric

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sys/unix"
)

// Totals are sums over all entry points since the process has started.
type Totals struct {
	// Counted reports whether requests are counted. If not, only CPUSeconds is known.
	Counted bool `json:"counted"`
	// ClientErrors are the answers with a status from 400 to 499, ServerErrors those from 500 on.
	Requests     uint64 `json:"requests"`
	ClientErrors uint64 `json:"clientErrors"`
	ServerErrors uint64 `json:"serverErrors"`
	// Seconds is the sum of the durations of the requests.
	Seconds float64 `json:"seconds"`
	// Received and Sent are the sizes of the bodies in bytes.
	Received uint64 `json:"received"`
	Sent     uint64 `json:"sent"`
	// CPUSeconds is the CPU time of the process.
	CPUSeconds float64 `json:"cpuSeconds"`
}

// Totals adds up the counters of the entry points.
func (m *Metrics) Totals() (t Totals) {
	t.CPUSeconds = cpuSeconds()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entryPoints == nil {
		return t
	}
	t.Counted = true
	for _, classes := range m.entryPoints.known {
		for c, at := range classes {
			n := uint64(read(at.requests).GetCounter().GetValue())
			t.Requests += n
			switch {
			case c.status >= 500:
				t.ServerErrors += n
			case c.status >= 400:
				t.ClientErrors += n
			}
			t.Received += uint64(read(at.received).GetCounter().GetValue())
			t.Sent += uint64(read(at.sent).GetCounter().GetValue())
			t.Seconds += read(at.duration.(prometheus.Metric)).GetHistogram().GetSampleSum()
		}
	}
	return t
}

// read returns the present value of a counter.
func read(m prometheus.Metric) *dto.Metric {
	var value dto.Metric
	_ = m.Write(&value) // counters and histograms do not fail
	return &value
}

// cpuSeconds returns the CPU time of this process.
func cpuSeconds() float64 {
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used) // it fails for unknown arguments only
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}
