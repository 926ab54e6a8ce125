package runner

import (
	"context"
	"fmt"
	"runtime"

	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// The validity gates, set before anything is measured.
const (
	// tick is the step of /proc/stat, in seconds.
	tick = 0.01
	// maxSteal is the share of the machine that the hypervisor may take.
	maxSteal = 0.05
	// maxThrottled is the share of the window that a CPU limit may stop us.
	maxThrottled = 0.01
	// maxLateness is the generator's own p99 lateness at a fixed rate, as a
	// share of the median latency that it measured.
	maxLateness = 0.5
)

// measure runs one workload for one client through the rig's path.
func (r *rig) measure(ctx context.Context, c result.Client, w suite.Workload) result.Run {
	run := result.Run{Case: result.Case{Path: r.path.Name, Client: c, Workload: w.Name, Tool: ownTool}}
	before, err := r.counters(ctx, c)
	if err != nil {
		return invalid(run, err)
	}
	var window *ledger.Window
	var gates ledger.Gates
	hooks := load.Hooks{
		Begin: func() (err error) { window, err = ledger.Begin(r.parties(c)); return err },
		End: func() error {
			l, g, err := window.End()
			run.Ledger, gates = &l, g
			return err
		},
	}
	m, err := load.Run(ctx, r.clients[c], r.server, r.target(c, LoadPort), w.Spec, hooks)
	if err != nil {
		return invalid(run, err)
	}
	run.Seconds, run.Latency, run.Metrics = m.Seconds, m.Latency, m.Metrics()
	stats.Derive(&run)
	after, err := r.counters(ctx, c)
	if err != nil {
		return invalid(run, err)
	}
	run.Proof = r.prove(c, before, after, m.ClientTotals.ReceivedBytes+m.ServerTotals.ReceivedBytes, run.Ledger)
	run.Invalid = judge(run, m, gates)
	if m.GeneratorBound() {
		run.Notes = append(run.Notes, result.GeneratorBound)
	}
	return run
}

func invalid(run result.Run, err error) result.Run {
	run.Invalid = append(run.Invalid, err.Error())
	return run
}

// judge lists what makes the run not count.
func judge(run result.Run, m load.Measurement, g ledger.Gates) []string {
	var why []string
	// /proc/stat counts steal in ticks, and one may have begun before us.
	if oneTick := tick / (run.Seconds * float64(runtime.NumCPU())); g.StealShare > maxSteal+oneTick {
		why = append(why, fmt.Sprintf("the hypervisor took %.1f %% of the CPU, more than %.0f %%", 100*g.StealShare, 100*maxSteal))
	}
	if g.Throttled > maxThrottled*run.Seconds {
		why = append(why, fmt.Sprintf("a CPU limit stopped us for %.0f ms", 1000*g.Throttled))
	}
	if g.Thermal > 0 {
		why = append(why, "a CPU was slowed down for its heat")
	}
	if m.Errors > 0 {
		why = append(why, fmt.Sprintf("%d requests or connections failed", m.Errors))
	}
	if m.Spec.Rate > 0 && m.Latency != nil && m.LatenessP99 > maxLateness*run.Metrics[result.LatencyP50] {
		why = append(why, fmt.Sprintf("the generator itself was late: p99 %.0f µs", 1e6*m.LatenessP99))
	}
	if run.Proof != nil && !run.Proof.OK {
		why = append(why, "the traffic did not take the path: "+run.Proof.Counter)
	}
	return why
}

// counters are what the path's proof compares.
type counters struct{ link, proxy uint64 }

func (r *rig) counters(ctx context.Context, c result.Client) (counters, error) {
	var n counters
	var err error
	if n.link, err = r.world.LinkBytes(r.proofLink(c)); err != nil {
		return n, err
	}
	if r.world.Proxy != nil {
		s, err := r.world.Proxy.Stats(ctx)
		if err != nil {
			return n, err
		}
		n.proxy = s.BytesIn + s.BytesOut
	}
	return n, nil
}

// proofLink is the link of the server host that all traffic must cross.
func (r *rig) proofLink(c result.Client) string {
	switch {
	case r.path.Peer == suite.HandDNAT:
		return handLink
	case r.path.Driver != model.DriverHost:
		return topology.EndpointLink(web)
	case c == result.Remote:
		return topology.Wire
	default:
		return "lo"
	}
}

// prove compares the counters with the bytes that the workload itself
// received: the path's link must have carried them all; a proxy must have,
// too, or else nothing of them.
func (r *rig) prove(c result.Client, before, after counters, received uint64, l *result.Ledger) *result.Proof {
	proxied := after.proxy - before.proxy
	p := &result.Proof{Counter: "bytes on link " + r.proofLink(c), Want: received, Got: after.link - before.link}
	p.OK = p.Got >= p.Want
	switch {
	case !p.OK:
	case r.path.Via == model.ViaProxy:
		*p = result.Proof{Counter: "bytes through the proxy", Want: received, Got: proxied, OK: proxied >= received}
	case r.path.Peer == suite.DockerProxy:
		// It counts nothing, but it cannot forward without CPU time.
		spent := uint64(1e6 * l.Proxy)
		*p = result.Proof{Counter: "CPU time of docker-proxy in µs", Want: 1, Got: spent, OK: spent > 0}
	case r.world.Proxy != nil:
		p.Absent, p.AbsentGot = "bytes through the proxy", proxied
		p.OK = proxied == 0
	}
	return p
}
