package stats

import "fairlead/internal/lab/result"

// Derive computes figures from a run's ledger and its main metrics, and adds those
// that the run does not have yet:
//
//	idle_share              = 1 - (busy - others) / (busy + idle)
//	cpu_adjusted_throughput = throughput / busy share
//	cpu_per_gb              = CPU-seconds used / 10^9 bytes received
//	cpu_per_op              = CPU-seconds used / transactions, connections,
//	                          packets or requests
//	gateway_cpu_per_…       = the same for the processes of a gateway alone
//
// docker-networking-on-linux compares paths with the second figure ("adjusting for
// CPU load"): the throughput of the path if it could use the whole machine at the
// same cost per byte. All figures exclude the time of other processes and of the
// laboratory itself: idle_share is what mpstat would show without them. Stolen time
// counts as busy, but the path did not cause it, so the cost of a byte or an
// operation does not include it.
func Derive(run *result.Run) {
	l := run.Ledger
	if l == nil || l.Wall <= 0 || l.Busy <= 0 {
		return
	}
	if run.Metrics == nil {
		run.Metrics = map[result.Metric]float64{}
	}
	ours := l.Busy - l.Other - l.Laboratory
	if ours <= l.Steal {
		return // the clocks contradict each other, so no figure can be computed
	}
	busy := ours / (l.Busy + l.Idle)
	work := (ours - l.Steal) / l.Wall
	setAbsent(run, result.IdleShare, 1-busy)
	if rate := run.Metrics[result.Throughput]; rate > 0 {
		setAbsent(run, result.Efficiency, rate/busy)
		setAbsent(run, result.CPUPerGB, work/(rate/8e9))
	}
	for _, m := range []result.Metric{result.TransactionRate, result.ConnectionRate, result.PacketRate,
		result.RequestRate} {
		if rate := run.Metrics[m]; rate > 0 {
			setAbsent(run, result.CPUPerOp, work/rate)
		}
	}
	deriveGateway(run)
}

// deriveGateway adds the cost of a gateway's own processes.
func deriveGateway(run *result.Run) {
	work := run.Ledger.Proxy / run.Ledger.Wall
	if work <= 0 || !result.HTTP(run.Workload) {
		return
	}
	if rate := run.Metrics[result.Throughput]; rate > 0 {
		setAbsent(run, result.GatewayPerGB, work/(rate/8e9))
	}
	if rate := run.Metrics[result.RequestRate]; rate > 0 {
		setAbsent(run, result.GatewayPerOp, work/rate)
	}
}

func setAbsent(run *result.Run, m result.Metric, value float64) {
	if !has(run, m) {
		run.Metrics[m] = value
	}
}
