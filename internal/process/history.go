package process

import (
	"bytes"
	"context"
	"os"
	"strconv"

	"fairlead/internal/daemon/stats"
	"fairlead/internal/frontend/dashboard/history"
	"fairlead/internal/gateway/metric"
)

// counting reads the counters for the charts of the dashboard: those of the daemon, of its gateway and of the host.
type counting struct {
	daemon interface {
		Totals(context.Context) stats.Totals
	}
	gateway interface {
		Totals(context.Context) (metric.Totals, error)
	}
}

// values reads all counters. One that cannot be read is left out.
func (c counting) values(ctx context.Context) history.Values {
	values := history.Values{}
	t := c.daemon.Totals(ctx)
	if t.Traffic != nil {
		values[history.BytesIn] = float64(t.Traffic.Bytes.In)
		values[history.BytesOut] = float64(t.Traffic.Bytes.Out)
	}
	if t.Flows != nil {
		values[history.Flows] = float64(*t.Flows)
	}
	if t.Traffic != nil && t.Drops != nil {
		values[history.Drops] = float64(t.Traffic.Drops.In + t.Traffic.Drops.Out + *t.Drops)
	}
	if t.Proxy != nil && t.Proxy.CPUSeconds > 0 {
		values[history.CPUProxy] = t.Proxy.CPUSeconds
	}
	if t.Conntrack != nil && t.Conntrack.Max > 0 {
		values[history.Conntrack] = float64(t.Conntrack.Entries) / float64(t.Conntrack.Max)
	}
	if g, err := c.gateway.Totals(ctx); err == nil {
		history.AddGateway(values, g)
	}
	if seconds, ok := kernelSeconds("/proc/stat"); ok {
		values[history.CPUKernel] = seconds
	}
	return values
}

// ticks are how many units of /proc/stat a second has. They are the same on all of Linux's architectures.
const ticks = 100

// kernelSeconds returns the CPU time that the kernel has used for interrupts and their follow-up work, which for a host
// of containers is its network code most of all.
func kernelSeconds(path string) (seconds float64, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := bytes.Fields(line) // cpu user nice system idle iowait irq softirq …
	if len(fields) < 8 {
		return 0, false
	}
	for _, field := range fields[6:8] {
		n, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil {
			return 0, false
		}
		seconds += float64(n) / ticks
	}
	return seconds, true
}
