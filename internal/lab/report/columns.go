package report

import (
	"cmp"
	"slices"

	"fairlead/internal/lab/result"
)

// column is one figure of one workload, for all paths of a client.
type column struct {
	title    string
	client   result.Client
	workload string
	tool     string
	metric   result.Metric
	scale    scale
}

// at returns a path's row in the column, or nil.
func (c column) at(r *result.Report, path string) *result.Summary {
	return find(r, result.Case{Path: path, Client: c.client, Workload: c.workload, Tool: c.tool}, c.metric)
}

// headColumns returns the columns that answer a suite's question for a client: the
// main metric of every workload, its CPU cost (per byte for bulk data, per
// operation for others), the additional metrics of a container's start and of a
// failover, and other metrics that others published for the same question.
func headColumns(r *result.Report, client result.Client) []column {
	var main, cpu, extra []column
	all := allColumns(r, client)
	bulk := slices.ContainsFunc(all, ofBulk)
	for _, c := range all {
		switch {
		case c.metric == result.Main(c.workload), c.metric == result.LatencyMean && !hasMain(all, c):
			c.title = workloadTitle(c.workload) + byTool(c.tool)
			main = append(main, c)
		case ofBulk(c) || ofBodies(c) || !bulk && c.metric == result.CPUPerOp:
			cpu = append(cpu, c)
		case slices.Contains(additional, c.metric), underLoad(c), exhausting(c):
			c.title = workloadTitle(c.workload) + byTool(c.tool) + ", " + metricTitle(c.metric)
			extra = append(extra, c)
		case publishes(r, c):
			c.title = metricTitle(c.metric)
			extra = append(extra, c)
		}
	}
	for i := range cpu {
		cpu[i].title = "CPU"
		if len(cpu) > 1 {
			cpu[i].title = "CPU " + workloadTitle(cpu[i].workload) + byTool(cpu[i].tool)
		}
	}
	return slices.Concat(main, cpu, extra)
}

// hasMain reports whether the column's workload and tool have the workload's main
// metric. qperf reports only the mean of round trips.
func hasMain(all []column, c column) bool {
	return slices.ContainsFunc(all, func(o column) bool {
		return o.workload == c.workload && o.tool == c.tool && o.metric == result.Main(c.workload)
	})
}

// ofBulk reports whether a column is the CPU cost of bulk data from Fairlead's
// generator.
func ofBulk(c column) bool {
	return c.metric == result.CPUPerGB && result.Kind(c.workload) == "tcp-bulk" && result.IsOwn(c.tool)
}

// ofBodies reports whether a column is the CPU cost of large HTTP bodies.
func ofBodies(c column) bool { return c.metric == result.CPUPerGB && result.HTTP(c.workload) }

// additional are the metrics that are shown in addition to a workload's main
// metric.
var additional = []result.Metric{result.RunTime, result.Memory, result.NoticeTime, result.RecoveryTime,
	result.ReturnTime, result.SlowestRequest, result.ChangeTime, result.GatewayPerOp, result.GatewayPerGB,
	result.VisitP99, result.FirstByteP50, result.FailedVisits, result.CPUPerVisit, result.Overlap,
	result.FailedConnects}

// allColumns lists every figure of a client.
func allColumns(r *result.Report, client result.Client) []column {
	var all []column
	for _, s := range r.Summary {
		c := column{client: client, workload: s.Workload, tool: s.Tool, metric: s.Metric}
		if s.Client == client && !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b column) int {
		return cmp.Or(compareWorkloads(a.workload, b.workload),
			cmp.Compare(rank(metricOrder, a.metric), rank(metricOrder, b.metric)), cmp.Compare(a.tool, b.tool))
	})
	for i := range all {
		all[i].scale = all[i].scaleOf(r)
	}
	return all
}

// metricOrder is the order in which the metrics of a workload are shown.
var metricOrder = []result.Metric{
	result.Throughput, result.RequestRate, result.LatencyP50, result.LatencyMean, result.LatencyP99,
	result.LatencyP999, result.ConnectionRate, result.TransactionRate, result.PacketRate, result.Loss, result.CPUPerGB,
	result.StartTime, result.RunTime, result.Memory, result.PublishMemory,
	result.FailoverTime, result.Overlap, result.FailedConnects, result.CompletedConnects,
	result.FailedRequests, result.NoticeTime, result.RecoveryTime, result.ReturnTime, result.SlowestRequest,
	result.Requests, result.ChangeTime,
	result.KneeRate, result.VisitP50, result.VisitP99, result.FirstByteP50, result.FailedVisits, result.Concurrent,
	result.SlowestProbe, result.CPUPerVisit,
	result.CPUPerOp, result.GatewayPerOp, result.GatewayPerGB, result.IdleShare, result.Efficiency,
}

// scaleOf returns the unit for the whole column.
func (c column) scaleOf(r *result.Report) scale {
	var values []float64
	for _, path := range pathsOf(r, c.client) {
		if s := c.at(r, path); s != nil {
			values = append(values, s.Value)
		}
	}
	return scaleFor(c.metric, values)
}

// byTool names an external generator.
func byTool(tool string) string {
	if result.IsOwn(tool) {
		return ""
	}
	return ", " + tool
}

// underLoad reports whether a column is a metric of latency under load that is shown in
// addition to the median: the tail, and the throughput at the same time.
func underLoad(c column) bool {
	return result.Loaded(c.workload) && (c.metric == result.LatencyP99 || c.metric == result.Throughput)
}

// exhausting reports whether a column is the rate of connections that may run out of
// ports, which is shown in addition to the number of failures.
func exhausting(c column) bool {
	return result.Kind(c.workload) == result.PortExhaustion && c.metric == result.ConnectionRate
}

// publishes reports whether others published this figure.
func publishes(r *result.Report, c column) bool {
	return result.IsOwn(c.tool) && slices.ContainsFunc(r.Published, func(p result.Published) bool {
		return p.Metric == c.metric && p.Workload == c.workload && p.Client == c.client
	})
}

// floorOf returns the greatest noise floor of the columns; found is false if there
// is none.
func floorOf(r *result.Report, columns []column) (floor float64, found bool) {
	for _, c := range columns {
		s := c.at(r, baselineOf(r))
		if s != nil && s.Rounds > 1 && s.Baseline != "" {
			floor, found = max(floor, s.Noise), true
		}
	}
	return floor, found
}
