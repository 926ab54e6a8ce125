package report

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"fairlead/internal/lab/result"
)

// benchUnit is the unit of a metric in a benchmark line.
type benchUnit struct {
	metric result.Metric
	unit   string
	by     float64
}

// benchUnits lists the metrics in the order of the line. Benchstat treats lower as
// better unless the file declares otherwise.
var benchUnits = []benchUnit{
	{result.Throughput, "bit/s", 1},
	{result.LatencyP50, "p50-us/op", 1e-6},
	{result.LatencyP99, "p99-us/op", 1e-6},
	{result.LatencyMean, "mean-us/op", 1e-6},
	{result.ConnectionRate, "conn/s", 1},
	{result.TransactionRate, "trans/s", 1},
	{result.PacketRate, "packets/s", 1},
	{result.Loss, "loss-%", 0.01},
	{result.CPUPerGB, "cpu-s/GB", 1},
	{result.CPUPerOp, "cpu-us/op", 1e-6},
	{result.IdleShare, "idle-%", 0.01},
	{result.Efficiency, "cpu-adjusted-bit/s", 1},
	{result.StartTime, "start-ms", 1e-3},
	{result.RunTime, "run-ms", 1e-3},
	{result.Memory, "bytes", 1},
	{result.PublishMemory, "publish-bytes", 1},
	{result.Requests, "requests", 1},
	{result.FailedRequests, "failed", 1},
	{result.NoticeTime, "notice-ms", 1e-3},
	{result.RecoveryTime, "recovery-ms", 1e-3},
	{result.ReturnTime, "return-ms", 1e-3},
	{result.SlowestRequest, "slowest-ms", 1e-3},
	{result.FailoverTime, "failover-ms", 1e-3},
	{result.Overlap, "overlap-ms", 1e-3},
	{result.FailedConnects, "failed-connects", 1},
	{result.CompletedConnects, "completed-connects", 1},
}

// Bench writes one Go benchmark line for every valid run, so that benchstat can
// compare paths (-col /path) or two files. The baseline has two lines per round.
func Bench(w io.Writer, r *result.Report) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "goos: linux\nsuite: %s\n", oneLine(r.Suite))
	if r.Host.CPUModel != "" {
		fmt.Fprintf(out, "cpu: %s\n", oneLine(r.Host.CPUModel))
	}
	for _, u := range benchUnits {
		if result.Units[u.metric].Better == result.Higher {
			fmt.Fprintf(out, "Unit %s better=higher\n", u.unit)
		}
	}
	for _, run := range r.Runs {
		if len(run.Invalid) == 0 && len(run.Metrics) > 0 {
			fmt.Fprintln(out, benchLine(run))
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write benchmark lines: %w", err)
	}
	return nil
}

func benchLine(run result.Run) string {
	line := fmt.Sprintf("BenchmarkPath/path=%s/client=%s/wl=%s", run.Path, run.Client, run.Workload)
	if !result.IsOwn(run.Tool) {
		line += "/tool=" + run.Tool
	}
	line += " 1"
	for _, u := range benchUnits {
		if v, ok := run.Metrics[u.metric]; ok {
			line += " " + strconv.FormatFloat(v/u.by, 'g', 10, 64) + " " + u.unit
		}
	}
	return line
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
