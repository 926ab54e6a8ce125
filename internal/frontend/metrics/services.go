package metrics

import (
	"maps"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/health"
	"fairlead/internal/model"

	dto "github.com/prometheus/client_model/go"
)

var ofReal = []string{"service", "real"}

// notOnReals says when the bytes and packets of a real server have no series.
const notOnReals = "There is no series with the data plane nft, which sees only the first packet of a flow, nor for " +
	"direction out with direct or tunnel forwarding, whose answers take another way."

// The metrics of virtual services. The label real is the real server's address and
// port, so there is one series per real server.
var (
	serviceUp = Metric{"fairlead_service_up", "gauge", []string{"service"},
		"1 if enough real servers of the virtual service are up, 0 if not."}
	serviceReals = Metric{"fairlead_service_real_servers", "gauge", []string{"service", "state"},
		"Real servers of the virtual service by state."}

	realUp          = Metric{"fairlead_real_up", "gauge", ofReal, "1 if the real server can get new flows, 0 if not."}
	realWeight      = Metric{"fairlead_real_weight", "gauge", ofReal, "Configured weight of the real server."}
	realTransitions = Metric{"fairlead_real_transitions_total", "counter", ofReal, "Times that its checks changed " +
		"the real server's state."}
	realEjections = Metric{"fairlead_real_ejections_total", "counter", ofReal, "Times that the real server was " +
		"taken out because clients' connections to it failed."}
	realChecks = Metric{"fairlead_real_checks_total", "counter", []string{"service", "real", "result"},
		"Checks of the real server by result: passed, failed, or void if this host could not make the check."}
	realFailures = Metric{"fairlead_real_check_failures_total", "counter", []string{"service", "real", "cause"},
		"Failed checks of the real server by cause: refused, timeout, unreachable, closed, tls, answer, command or " +
			"unhealthy."}
	realCheckOK = Metric{"fairlead_real_check_ok", "gauge", ofReal, "1 if the last check of the real server " +
		"passed, 0 if not."}
	realCheckLast = Metric{"fairlead_real_check_duration_seconds", "gauge", ofReal, "Duration of the last check " +
		"of the real server."}
	realCheckBusy = Metric{"fairlead_real_check_seconds_total", "counter", ofReal, "Total duration of all checks " +
		"of the real server."}
	realFlows = Metric{"fairlead_real_flows_total", "counter", ofReal, "Connections and UDP flows that the " +
		"real server got."}
	realLive = Metric{"fairlead_real_live_flows", "gauge", ofReal, "Connections and UDP flows of the real " +
		"server that are open."}
	realBytes = Metric{"fairlead_real_bytes_total", "counter", directed(ofReal), "Bytes to and from the real " +
		"server that pass this host. " + notOnReals}
	realPackets = Metric{"fairlead_real_packets_total", "counter", directed(ofReal), "Packets to and from the " +
		"real server that pass this host. " + notOnReals}

	healthChecks = Metric{"fairlead_health_checks_total", "counter", []string{"result"}, "Checks of all real " +
		"servers by result: passed, failed, or void if this host could not make the check."}
)

// standings are the values of the label state.
var standings = []api.RealStatus{api.RealUp, api.RealDown, api.RealDraining, api.RealDrained,
	api.RealDisabled, api.RealSorry}

// services adds the metrics of virtual services.
func (f *families) services(s api.Stats) {
	for _, v := range s.Services {
		f.add(serviceUp, truth(v.Status == api.ServiceUp), f.labels(serviceUp.Labels, v.Service))
		states := map[api.RealStatus]int{}
		for _, r := range v.Reals {
			states[r.State]++
			f.real(v.Service, r)
		}
		for _, state := range standings {
			f.add(serviceReals, float64(states[state]), f.labels(serviceReals.Labels, v.Service, string(state)))
		}
	}
	passed := s.Checks.Checks - s.Checks.Failed - s.Checks.Void
	for _, c := range []struct {
		result string
		n      uint64
	}{{"passed", passed}, {"failed", s.Checks.Failed}, {"void", s.Checks.Void}} {
		f.add(healthChecks, float64(c.n), f.labels(healthChecks.Labels, c.result))
	}
}

func (f *families) real(service string, r api.RealStats) {
	name := model.RealServer{Address: r.Real.Addr(), Port: r.Real.Port()}.String()
	of := f.bothDirections(ofReal, service, name)
	f.add(realUp, truth(r.State == api.RealUp || r.State == api.RealSorry), of.plain())
	f.add(realWeight, float64(r.Weight), of.plain())
	f.add(realTransitions, float64(r.Transitions), of.plain())
	f.checks(service, name, of.plain(), r.Checks)
	if r.Flows != nil {
		f.add(realFlows, float64(*r.Flows), of.plain())
	}
	if r.Live != nil {
		f.add(realLive, float64(*r.Live), of.plain())
	}
	f.counted(realBytes, r.Bytes, of)
	f.counted(realPackets, r.Packets, of)
}

// counted adds the directions that are counted.
func (f *families) counted(m Metric, n *api.Counted, of directions) {
	if n != nil && n.In != nil {
		f.add(m, float64(*n.In), of.in)
	}
	if n != nil && n.Out != nil {
		f.add(m, float64(*n.Out), of.out)
	}
}

// checks adds the counters of a real server's checks. There is one series per cause
// of failure that has occurred; the number of causes is small.
func (f *families) checks(service, name string, of []*dto.LabelPair, c *health.Counts) {
	if c == nil {
		return
	}
	f.add(realEjections, float64(c.Ejected), of)
	if c.Made() == 0 {
		return
	}
	for _, r := range []struct {
		result string
		n      uint64
	}{{"passed", c.Passed}, {"failed", c.Made() - c.Passed - c.Void}, {"void", c.Void}} {
		f.add(realChecks, float64(r.n), f.labels(realChecks.Labels, service, name, r.result))
	}
	for _, cause := range slices.Sorted(maps.Keys(c.Failed)) {
		f.add(realFailures, float64(c.Failed[cause]), f.labels(realFailures.Labels, service, name, string(cause)))
	}
	f.add(realCheckOK, truth(c.OK), of)
	f.add(realCheckLast, c.Last.Seconds(), of)
	f.add(realCheckBusy, c.Busy.Seconds(), of)
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
