package process

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"fairlead/internal/daemon/stats"
	"fairlead/internal/frontend/dashboard/history"
	"fairlead/internal/gateway/metric"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"
)

// counts are the counters of a daemon and its gateway.
type counts struct {
	host    stats.Totals
	gateway metric.Totals
	err     error
}

func (c counts) Totals(context.Context) stats.Totals { return c.host }

// gatewayCounts are those of the gateway.
type gatewayCounts struct{ counts }

func (c gatewayCounts) Totals(context.Context) (metric.Totals, error) { return c.gateway, c.err }

// TestCountersOfCharts: what is not known is no figure, so that a chart has a gap and no zero.
func TestCountersOfCharts(t *testing.T) {
	flows, drops := uint64(7), uint64(2)
	c := counts{host: stats.Totals{Traffic: &counter.Traffic{Bytes: counter.InOut{In: 10, Out: 20},
		Drops: counter.InOut{In: 1}}, Flows: &flows, Drops: &drops, Proxy: &model.ProxyStats{CPUSeconds: 0.5},
		Conntrack: &counter.Fill{Entries: 1, Max: 4}}, gateway: metric.Totals{Counted: true, Requests: 9, Seconds: 3,
		CPUSeconds: 1}}
	got := counting{c, gatewayCounts{c}}.values(t.Context())
	if got[history.CPUKernel] <= 0 {
		t.Errorf("the kernel has used %v seconds", got[history.CPUKernel])
	}
	delete(got, history.CPUKernel)
	if want := (history.Values{history.BytesIn: 10, history.BytesOut: 20, history.Flows: 7, history.Drops: 3,
		history.CPUProxy: 0.5, history.Conntrack: 0.25, history.Requests: 9, history.ClientErrors: 0,
		history.ServerErrors: 0, history.RequestSeconds: 3, history.RequestBytes: 0, history.ResponseBytes: 0,
		history.CPUGateway: 1}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	got = counting{counts{}, gatewayCounts{counts{err: errors.New("there is no gateway")}}}.values(t.Context())
	if delete(got, history.CPUKernel); len(got) > 0 {
		t.Errorf("without any counter: %v", got)
	}
}

func TestKernelSeconds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stat")
	for text, want := range map[string]float64{"cpu  1 2 3 4 5 600 700 8\ncpu0 1": 13, "cpu  1 2": 0, "": 0,
		"cpu  1 2 3 4 5 6 x 8\n": 0} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, ok := kernelSeconds(file); ok != (want > 0) || ok && got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, ok, want)
		}
	}
	if _, ok := kernelSeconds(file + ".none"); ok {
		t.Error("a file that does not exist was read")
	}
}
