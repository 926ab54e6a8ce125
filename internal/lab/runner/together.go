package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// Divide removes the workloads from the suite that are measured on one machine only,
// and returns them. It returns an error if none is left, or if the user has named
// them.
func Divide(s *suite.Suite, named bool) (omitted []result.Unavailable, err error) {
	if slices.Contains(s.Clients, result.Outbound) {
		return nil, errors.New("client outbound: between two machines, connections that a sandbox opens are not " +
			"measured: measure them on one machine, or choose another --client")
	}
	var left []suite.Workload
	for _, w := range s.Workloads {
		why := w.Undivided()
		switch {
		case why == "":
			left = append(left, w)
		case named:
			return nil, fmt.Errorf("workload %s: %s: choose another one with --workload", w.Name, why)
		default:
			omitted = append(omitted, result.Unavailable{Workload: w.Name, Reason: why})
		}
	}
	if len(left) == 0 {
		return nil, fmt.Errorf("suite %s: %s", s.Name, omitted[0].Reason)
	}
	s.Workloads = left
	p, _ := suite.FindPath(s.Baseline)
	if why := p.Undivided(); why != "" {
		return nil, fmt.Errorf("the baseline %s: %s", s.Baseline, why)
	}
	return omitted, nil
}

// The limits for a link's other traffic: a share of its speed and, if the driver does
// not report the speed, a rate in bit/s.
const (
	maxShare = 0.01
	maxRate  = 1e6
)

// Crowded returns why a machine's link cannot be used, because it carries other
// traffic; "" if it can.
func Crowded(m result.Machine) string {
	limit := max(maxRate, maxShare*m.Link.Speed)
	if m.Link.Other <= limit {
		return ""
	}
	return fmt.Sprintf("link %s of the %s's machine carries %.1f Mbit/s of other traffic, more than %.1f: end what "+
		"uses it, or count the runs with --shared", m.Link.Name, m.Part, m.Link.Other/1e6, limit/1e6)
}

// probeTime is the length of each of the probe's windows.
const probeTime = 20 * time.Millisecond

// probes are the kinds of packets that every suite needs between the machines.
var probes = []struct {
	what string
	spec load.Spec
}{
	{"TCP", load.Spec{Workload: load.TCPRR}},
	{"UDP", load.Spec{Workload: load.UDPRR}},
	{"full-size UDP", load.Spec{Workload: load.UDPRR, Size: load.MaxDatagram6}},
}

// ErrBetween means that packets do not pass between the two machines.
var ErrBetween = errors.New("the machines are not connected as the laboratory needs")

// Probe checks whether the packets of the laboratory pass between the two machines.
// Returns ErrBetween with what does not pass, and what may be the cause.
func Probe(ctx context.Context, opt Options) (err error) {
	opt.Suite = suite.Suite{Name: "quick", Clients: []result.Client{result.Remote}, Family: opt.Suite.Family,
		Netem: opt.Suite.Netem}
	quick, _ := suite.Find(opt.Suite.Name)
	opt.Suite.Workloads = quick.Workloads
	p := opt.Suite.Path("host")
	b, err := (&session{Options: opt}).buildParts(ctx, p)
	if err != nil {
		return fmt.Errorf("probe the link between the machines: %w", err)
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	var failed []string
	for _, probe := range probes {
		probe.spec.Duration = probeTime
		_, err := load.Run(ctx, b.of(result.Remote).Client(result.Remote), b.server.Server(),
			b.dial(result.Remote, rig.LoadPort), probe.spec, load.Hooks{})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed = append(failed, probe.what)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrBetween, between(failed, opt.Machines))
}

// between explains which packets do not pass and what may drop them.
func between(failed []string, machines []result.Machine) string {
	var links, filters []string
	for _, m := range machines {
		links = append(links, fmt.Sprintf("link %s of the %s's machine", m.Link.Name, m.Part))
		for _, f := range m.Link.Filters {
			filters = append(filters, fmt.Sprintf("%s on the %s's machine", f, m.Part))
		}
	}
	text := fmt.Sprintf("no %s packets pass between %s", strings.Join(failed, " and no "), strings.Join(links, " and "))
	switch {
	case len(filters) > 0:
		text += ": remove what drops them; the machines have " + strings.Join(filters, ", ")
	case len(failed) == len(probes):
		text += ": the links are not on one Ethernet segment, or a switch or hypervisor in between drops frames from " +
			"other MAC addresses than the machines' own"
	default:
		text += ", but others do: a firewall between the machines drops them, which is on neither of them"
	}
	return text
}
