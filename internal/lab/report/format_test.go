package report

import (
	"testing"

	"fairlead/internal/lab/result"
)

func TestFigures(t *testing.T) {
	cases := []struct {
		metric result.Metric
		value  float64
		want   string
	}{
		{result.Throughput, 23.44e9, "23.4 Gbit/s"},
		{result.Throughput, 0.93e9, "930 Mbit/s"},
		{result.LatencyP50, 23.14e-6, "p50 23.1 µs"},
		{result.LatencyP99, 0.0345, "p99 34.5 ms"},
		{result.ConnectionRate, 1234567, "1 234 567 /s"},
		{result.PacketRate, 512300, "512 kpps"},
		{result.CPUPerGB, 0.524, "0.524 s/GB"},
		{result.CPUPerOp, 12.34e-6, "12.3 µs/op"},
		{result.Loss, 0, "0 %"},
		{result.Loss, 0.0123, "1.23 %"},
	}
	for _, c := range cases {
		if got := writeFigure(c.metric, c.value); got != c.want {
			t.Errorf("%s %g: %q, want %q", c.metric, c.value, got, c.want)
		}
	}
}

func TestMargins(t *testing.T) {
	cases := []struct {
		ratio, low, high float64
		want             string
	}{
		{0.98, 0.96, 1.00, "±0.02"},
		{1, 0.998, 1.002, "±.002"},
		{12.3, 11.9, 12.7, "±0.4"},
		{1.2, 1.2, 1.2, "±.000"},
	}
	for _, c := range cases {
		if got := formatMargin(&result.Summary{Ratio: c.ratio, RatioLow: c.low, RatioHigh: c.high}); got != c.want {
			t.Errorf("%v: %q", c, got)
		}
	}
}

func TestWorkloadTitles(t *testing.T) {
	for name, want := range map[string]string{
		"tcp-bulk": "bulk", "tcp-bulk-down": "bulk down", "tcp-rr-spin": "round trip spin",
		"udp-rr": "UDP round trip", "sctp": "sctp",
	} {
		if got := workloadTitle(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
