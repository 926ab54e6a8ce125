package stats

import (
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/internal/paths"
)

// reason is why figures are not counted, if it holds.
type reason struct {
	holds bool
	text  string
}

// joined returns the reasons that hold as one text.
func joined(all ...reason) string {
	var texts []string
	for _, r := range all {
		if r.holds {
			texts = append(texts, r.text)
		}
	}
	return strings.Join(texts, "; ")
}

// explain sets which figures of endpoints, networks and publishes are not counted, and why.
// The figures that could be read must be set already.
func explain(s *api.Stats) {
	for i, n := range s.Networks {
		if n.Driver.Traits().NoLink {
			s.Networks[i].Traffic, s.Networks[i].NotCounted = nil, noLink
		}
	}
	for i, e := range s.Endpoints {
		switch {
		case e.Driver.Traits().NoLink:
			s.Endpoints[i].NotCounted = noLink
		case e.Traffic == nil:
			s.Endpoints[i].NotCounted = "all figures: the endpoint's link or sandbox does not exist, or could not be read"
		}
	}
	for i := range s.Publishes {
		s.Publishes[i].NotCounted = publishReasons(s.Publishes[i])
	}
}

// noLink is the reason for endpoints without a link.
const noLink = "all figures: the network's endpoints have no links of their own"

// publishReasons returns which figures of a publish are not counted, and why.
func publishReasons(p api.PublishStats) string {
	carrier := model.CarrierHooks
	if mode, known := paths.Mode(p.Via); known {
		carrier = mode.Carrier()
	}
	switch carrier {
	case model.CarrierStack:
		return joined(
			reason{true, "bytes and packets: only the first packet of a flow passes a rule of Fairlead"},
			reason{p.Flows == nil, "flows: the kernel or an earlier version's table has no counters in maps"})
	case model.CarrierUserSpace:
		return joined(
			reason{p.Bytes == nil, "all figures: the proxy has not reported them"},
			reason{p.Bytes != nil && p.Packets == nil, "packets: the proxy forwards a stream of bytes"})
	case model.CarrierPrograms:
		return joined(
			reason{p.Drops == nil, "what the kernel forwards: the eBPF data path has no counters left for the publish"},
			reason{p.Drops != nil, "packets of this host's own processes: their sockets are redirected"})
	}
	return "all figures: the workload has a socket of the host, and Fairlead is not on the packets' path"
}
