package report

import (
	"fmt"

	"fairlead/internal/lab/result"
)

// share is one part of the ledger in a drawing.
type share struct {
	name, class string
	of          func(*result.Ledger) float64
}

// shares lists the parts in the order in which they are stacked.
func shares() []share {
	return []share{
		{"client", "l-client", func(l *result.Ledger) float64 { return l.Client }},
		{"server", "l-server", func(l *result.Ledger) float64 { return l.Server }},
		{"proxy", "l-proxy", func(l *result.Ledger) float64 { return l.Proxy }},
		{"kernel threads", "l-kthread", func(l *result.Ledger) float64 { return l.KernelThread }},
		{"laboratory", "l-lab", func(l *result.Ledger) float64 { return l.Laboratory }},
		{"other processes", "l-other", func(l *result.Ledger) float64 { return l.Other }},
		{"unattributed", "l-unknown", func(l *result.Ledger) float64 { return l.Unattributed }},
	}
}

// account is one path's mean ledger, in CPUs.
type account struct {
	path  string
	parts []float64
	busy  float64
	cpus  float64
	err   float64
	runs  float64
}

// ledgers draws the CPU time per consumer, for every workload of a client.
func ledgers(r *result.Report, client result.Client) []chart {
	return perWorkload(r, client, func(workload, path string) (account, bool) {
		a := accountOf(r, client, workload, path)
		return a, a.runs > 0
	}, ledgerChart)
}

// accountOf returns the mean over the valid runs of a path with Fairlead's
// generator.
func accountOf(r *result.Report, client result.Client, workload, path string) account {
	a := account{path: path, parts: make([]float64, len(shares()))}
	for _, run := range r.Runs {
		l := run.Ledger
		if run.Path != path || run.Client != client || run.Workload != workload || !result.IsOwn(run.Tool) ||
			len(run.Invalid) > 0 || l == nil || l.Wall <= 0 {
			continue
		}
		for i, s := range shares() {
			a.parts[i] += s.of(l) / l.Wall
		}
		a.busy += l.Busy / l.Wall
		a.err += l.Error
		a.cpus = max(a.cpus, float64(l.CPUs))
		a.runs++
	}
	for i := range a.parts {
		a.parts[i] /= max(1, a.runs)
	}
	a.busy /= max(1, a.runs)
	a.err /= max(1, a.runs)
	return a
}

func ledgerChart(workload string, accounts []account) chart {
	bottom := forestTop + rowHeight*float64(len(accounts))
	ch := chart{Title: workloadTitle(workload), Caption: "closes within " + percent(worstError(accounts)),
		Unit: "CPUs busy", W: forestWidth, H: bottom + 24}
	most := accounts[0].cpus
	for _, a := range accounts {
		most = max(most, a.busy)
	}
	x := ch.fromZero(most, 1, bottom)
	ch.Text = ch.Title + ", CPU time per consumer."
	for i, a := range accounts {
		ledgerRow(&ch, a, x, forestTop+rowHeight*float64(i))
	}
	return ch
}

// ledgerRow stacks the parts. A negative part (its clock is finer than the ticks
// of /proc/stat) has no width.
func ledgerRow(ch *chart, a account, x func(float64) float64, y float64) {
	ch.label(forestLeft-12, y+rowHeight/2+4, "end", "name", a.path)
	ch.rect(x(0), y+5, x(a.cpus)-x(0), rowHeight-10, "l-idle", "")
	at := 0.0
	ch.Text += " " + a.path + ":"
	for i, s := range shares() {
		hint := fmt.Sprintf("%s: %s %.2f CPUs", a.path, s.name, a.parts[i])
		if a.parts[i] > 0 {
			ch.rect(x(at), y+5, x(at+a.parts[i])-x(at), rowHeight-10, s.class, hint)
			at += a.parts[i]
		}
		ch.Text += fmt.Sprintf(" %s %.2f,", s.name, a.parts[i])
	}
	ch.Text += fmt.Sprintf(" total %.2f of %g CPUs.", a.busy, a.cpus)
	ch.label(forestWidth, y+rowHeight/2+4, "end", "figure", fmt.Sprintf("%.2f of %g", a.busy, a.cpus))
}

func worstError(accounts []account) float64 {
	worst := 0.0
	for _, a := range accounts {
		worst = max(worst, a.err)
	}
	return worst
}

// ledgerKeys is the legend of all ledgers on a page.
func ledgerKeys() []key {
	var all []key
	for _, s := range shares() {
		all = append(all, key{s.class, s.name})
	}
	return append(all, key{"l-idle", "idle"})
}
