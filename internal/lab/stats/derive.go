package stats

import "fairlead/internal/lab/result"

// Derive fills the figures that follow from a run's ledger and its main
// metrics, where the run does not hold them already:
//
//	idle_share              = 1 - (busy - others) / (busy + idle)
//	cpu_adjusted_throughput = throughput / busy share
//	cpu_per_gb              = CPU-seconds worked / 10^9 bytes received
//	cpu_per_op              = CPU-seconds worked / transactions, connections
//	                          or packets
//
// The second is how docker-networking-on-linux compares paths ("adjusting for
// CPU load"): what the path would carry if it had the whole machine at the
// same price. What other processes and the laboratory itself used is left out
// everywhere: idle_share is what mpstat would show without them. Stolen time
// keeps the machine busy, but it is not work that the path asked for, and so it
// is no part of the cost of a byte or an operation.
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
		return // the clocks do not close: nothing can be said
	}
	busy := ours / (l.Busy + l.Idle)
	work := (ours - l.Steal) / l.Wall
	setAbsent(run, result.IdleShare, 1-busy)
	if rate := run.Metrics[result.Throughput]; rate > 0 {
		setAbsent(run, result.Efficiency, rate/busy)
		setAbsent(run, result.CPUPerGB, work/(rate/8e9))
	}
	for _, m := range []result.Metric{result.TransactionRate, result.ConnectionRate, result.PacketRate} {
		if rate := run.Metrics[m]; rate > 0 {
			setAbsent(run, result.CPUPerOp, work/rate)
		}
	}
}

func setAbsent(run *result.Run, m result.Metric, value float64) {
	if !has(run, m) {
		run.Metrics[m] = value
	}
}
