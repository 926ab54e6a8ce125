package load

import (
	"fmt"
	"net/netip"

	"github.com/HdrHistogram/hdrhistogram-go"

	"fairlead/internal/lab/result"
)

// Measurement is the result of one window.
type Measurement struct {
	Spec Spec
	// Seconds is the window on the client's clock, ServerSeconds on the
	// server's. Divide a side's counters by the same side's seconds.
	Seconds       float64
	ServerSeconds float64

	// BytesUp is the payload that the server received in its window (of streams in the
	// background alone, if there are any),
	// BytesDown the payload that the client received in its window.
	BytesUp   uint64
	BytesDown uint64
	// SentBytes is the payload that the senders of bulk data, or the client,
	// passed to the kernel.
	SentBytes uint64

	// Transactions counts those that ended within the window; Latency counts the
	// same. Connections counts the connections closed in it, Errors the failed
	// transactions.
	Transactions uint64
	Connections  uint64
	Errors       uint64
	// Reasons counts the failed attempts by reason, if the spec has a number of them;
	// Errors counts the same. Attempts that were not made are among them.
	Reasons map[string]int

	// Packets are counted for udp-bulk and udp-pps only. PacketsSent counts those
	// that were sent within the sender's window, PacketsReceived those of them
	// that arrived, in the window or later. Loss is computed from these two.
	PacketsSent     uint64
	PacketsReceived uint64
	// Sources are the addresses of the HTTP server's clients in the whole run.
	Sources []netip.Addr

	// PacketsDelivered counts those that arrived within the receiver's window.
	PacketsDelivered uint64

	// Latency is nil for bulk and pps.
	Latency *result.Latency
	// LatenessP99 is the generator's own delay at a fixed rate, in seconds.
	LatenessP99 float64
	// Histogram contains the latencies in ns, at a fixed rate from the intended
	// time; nil for bulk and pps. It can be merged with those of other windows.
	Histogram *hdrhistogram.Histogram

	// ClientCPU and ServerCPU are the CPU-seconds that each process spent in
	// its window.
	ClientCPU float64
	ServerCPU float64
	// ClientGeneratorShare and ServerGeneratorShare are the shares of the streams'
	// time that each side spent in the generator's code and not in the kernel.
	ClientGeneratorShare float64
	ServerGeneratorShare float64

	// ClientTotals and ServerTotals cover the whole run, warm-up and drain
	// included, for comparison with counters on the path.
	ClientTotals Totals
	ServerTotals Totals
}

// levels are the quantiles of a latency that are kept.
var levels = [...]float64{0, 0.5, 0.9, 0.99, 0.999, 0.9999, 1}

func (r *run) measurement() (Measurement, error) {
	client := r.end.client.Totals.minus(r.begin.client.Totals)
	server := r.end.server.Totals.minus(r.begin.server.Totals)
	m := Measurement{
		Spec:                 r.spec,
		Seconds:              seconds(r.end.client.Mono - r.begin.client.Mono),
		ServerSeconds:        seconds(r.end.server.Mono - r.begin.server.Mono),
		BytesUp:              server.ReceivedBytes - r.transactionBytes(server),
		BytesDown:            client.ReceivedBytes,
		SentBytes:            client.SentBytes,
		Connections:          client.Connections,
		Errors:               r.clientEnded.Failed,
		Reasons:              r.clientEnded.Reasons,
		PacketsSent:          r.clientEnded.MarkedSent + r.serverEnded.MarkedSent,
		PacketsReceived:      r.clientEnded.MarkedReceived + r.serverEnded.MarkedReceived,
		PacketsDelivered:     client.PacketsReceived + server.PacketsReceived,
		ClientCPU:            seconds(r.end.client.CPU - r.begin.client.CPU),
		ServerCPU:            seconds(r.end.server.CPU - r.begin.server.CPU),
		ClientGeneratorShare: r.own(r.begin.client, r.end.client),
		ServerGeneratorShare: r.own(r.begin.server, r.end.server),
		ClientTotals:         r.clientEnded.Totals,
		ServerTotals:         r.serverEnded.Totals,
		Sources:              r.serverEnded.Sources,
	}
	if r.spec.Workload.bulk() {
		m.SentBytes += server.SentBytes
	}
	if err := m.setLatency(r.clientEnded, r.serverEnded); err != nil {
		return Measurement{}, fmt.Errorf("run %s: %w", r.spec.Workload, err)
	}
	return m, nil
}

// transactionBytes are the bytes of the requests among those that the server received
// beside streams in the background, so that these are counted alone.
func (r *run) transactionBytes(server Totals) uint64 {
	if r.spec.Background == 0 {
		return 0
	}
	return min(server.ReceivedBytes, server.Transactions*uint64(r.spec.Size))
}

// own is the share of a side's streams' time that went into user code.
func (r *run) own(begin, end edge) float64 {
	return float64(end.User-begin.User) / float64(end.Mono-begin.Mono) / float64(r.spec.threads())
}

// maxOwn is the greatest share of its time that a generator may spend in its own
// code. Above it, the generator could not show that a path is twice as fast.
const maxOwn = 0.5

// GeneratorBound reports whether the generator, and not the path, limited the rate.
func (m Measurement) GeneratorBound() bool {
	return max(m.ClientGeneratorShare, m.ServerGeneratorShare) > maxOwn
}

// setLatency decodes the histograms. The lateness is that of the side that sends.
func (m *Measurement) setLatency(client, server outcome) error {
	lateness, err := decode(client.Lateness, server.Lateness)
	if err != nil {
		return err
	}
	m.LatenessP99 = quantile(lateness, 0.99)
	if !m.Spec.Workload.transactional() {
		return nil
	}
	if m.Histogram, err = decode(client.Latency); err != nil {
		return err
	}
	service, err := decode(client.Service)
	if err != nil {
		return err
	}
	m.Transactions = uint64(m.Histogram.TotalCount())
	m.Latency = &result.Latency{Count: m.Transactions, LatenessP99: m.LatenessP99}
	for _, level := range levels {
		m.Latency.Levels = append(m.Latency.Levels, level)
		m.Latency.Quantiles = append(m.Latency.Quantiles, quantile(m.Histogram, level))
		if m.Spec.Rate > 0 {
			m.Latency.Service = append(m.Latency.Service, quantile(service, level))
		}
	}
	return nil
}

// decode merges encoded histograms; without any, the result is empty.
func decode(encoded ...[]byte) (*hdrhistogram.Histogram, error) {
	sum := newHistogram()
	for _, b := range encoded {
		if len(b) == 0 {
			continue
		}
		h, err := hdrhistogram.Decode(b)
		if err != nil {
			return nil, fmt.Errorf("decode histogram: %w", err)
		}
		sum.Merge(h)
	}
	return sum, nil
}

// quantile returns a quantile in seconds of a histogram in ns.
func quantile(h *hdrhistogram.Histogram, level float64) float64 {
	return seconds(h.ValueAtQuantile(100 * level))
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// Metrics returns the metrics that the workload measures.
func (m Measurement) Metrics() map[result.Metric]float64 {
	out := map[result.Metric]float64{}
	w := m.Spec.Workload
	switch {
	case w.payload():
		out[result.Throughput] = 8 * (per(m.BytesUp, m.ServerSeconds) + per(m.BytesDown, m.Seconds))
	case w == UDPPPS:
		out[result.PacketRate] = per(m.PacketsDelivered, m.ServerSeconds)
	case w == TCPCRR:
		out[result.ConnectionRate] = per(m.Connections, m.Seconds)
		if m.Spec.Attempts > 0 {
			out[result.CompletedConnects], out[result.FailedConnects] = float64(m.Transactions), float64(m.Errors)
		}
	case m.Spec.Background > 0:
		out[result.Throughput] = 8 * per(m.BytesUp, m.ServerSeconds)
	case w == HTTPIdle: // it has no traffic
	case w.HTTP():
		out[result.RequestRate] = per(m.Transactions, m.Seconds)
	default:
		out[result.TransactionRate] = per(m.Transactions, m.Seconds)
	}
	if w == UDPBulk || w == UDPPPS {
		out[result.Loss] = m.Loss()
	}
	if m.Latency != nil && m.Latency.Count > 0 {
		out[result.LatencyP50] = quantile(m.Histogram, 0.5)
		out[result.LatencyP99] = quantile(m.Histogram, 0.99)
		out[result.LatencyMean] = m.Histogram.Mean() / 1e9
	}
	if w.HTTP() && m.Latency != nil {
		out[result.LatencyP999] = quantile(m.Histogram, 0.999)
	}
	return out
}

// Loss is the share of the datagrams sent in the window that never arrived.
func (m Measurement) Loss() float64 {
	if m.PacketsSent == 0 {
		return 0
	}
	return 1 - float64(m.PacketsReceived)/float64(m.PacketsSent)
}

func per(n uint64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}
