package api

import (
	"net/netip"

	"fairlead/internal/health"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"
)

// Stats are the counters of the daemon's networks. A nil value is not counted. The texts
// NotCounted name the figures that are not counted, and the reason; they are empty if all
// are counted.
type Stats struct {
	Networks  []NetworkStats  `json:"networks"`
	Endpoints []EndpointStats `json:"endpoints"`
	Publishes []PublishStats  `json:"publishes"`
	Services  []ServiceStats  `json:"services"`
	// Checks counts the checks of all real servers since the daemon started.
	Checks health.Counters `json:"checks"`
	// Attachments counts the attachments by status.
	Attachments map[Status]int `json:"attachments"`
	// Proxy is the payload that the user-space proxy has forwarded.
	Proxy *model.ProxyStats `json:"proxy,omitempty"`
	// EBPF and Conntrack are how full the kernel's tables are.
	EBPF      *counter.Fill `json:"ebpf,omitempty"`
	Conntrack *counter.Fill `json:"conntrack,omitempty"`
	// Problems are the errors of counters that could not be read.
	Problems []string `json:"problems,omitempty"`
}

// NetworkStats is the traffic of a network's endpoints. It includes removed endpoints,
// up to the last time that their counters were read.
type NetworkStats struct {
	Network string       `json:"network"`
	Driver  model.Driver `json:"driver"`
	// Traffic is nil if the network's endpoints have no links, e.g. on the host's
	// network.
	*counter.Traffic
	NotCounted string `json:"notCounted,omitempty"`
}

// EndpointStats is the traffic of an endpoint's link.
type EndpointStats struct {
	Endpoint string       `json:"endpoint"`
	Network  string       `json:"network"`
	Driver   model.Driver `json:"driver"`
	// Traffic is nil if the endpoint has no link, e.g. on the host's network.
	Traffic    *counter.Traffic `json:"traffic,omitempty"`
	NotCounted string           `json:"notCounted,omitempty"`
}

// PublishStats is the traffic of a publish. docs/guide/monitoring.md describes what
// each publish mode counts.
type PublishStats struct {
	Network string `json:"network"`
	model.Publish
	Bytes   *counter.InOut `json:"bytes,omitempty"`
	Packets *counter.InOut `json:"packets,omitempty"`
	Drops   *counter.InOut `json:"drops,omitempty"`
	// Flows counts all flows since the start, Live the open ones.
	Flows      *uint64 `json:"flows,omitempty"`
	Live       *uint64 `json:"live,omitempty"`
	NotCounted string  `json:"notCounted,omitempty"`
}

// Counted is a count for each direction: In is towards the workload. A nil value is not
// counted.
type Counted struct {
	In  *uint64 `json:"in,omitempty"`
	Out *uint64 `json:"out,omitempty"`
}

// ServiceStats are the counters of a virtual service.
type ServiceStats struct {
	Service string        `json:"service"`
	Plane   model.Plane   `json:"plane,omitempty"`
	Status  ServiceStatus `json:"status"`
	Reals   []RealStats   `json:"reals"`
}

// RealStats are the counters of a real server.
type RealStats struct {
	// Real is its address. Port 0 is the port that the client has connected to.
	Real   netip.AddrPort `json:"real"`
	State  RealStatus     `json:"state"`
	Weight int            `json:"weight"`
	// Transitions is how often the checks have taken it out of service or brought it
	// back.
	Transitions uint64 `json:"transitions"`
	// Checks counts its checks; nil if there were none.
	Checks *health.Counts `json:"checks,omitempty"`
	// Live is the number of its open flows, Flows the number of all flows that it got.
	// A value is nil if the data plane does not count it.
	Live       *uint64  `json:"live,omitempty"`
	Flows      *uint64  `json:"flows,omitempty"`
	Packets    *Counted `json:"packets,omitempty"`
	Bytes      *Counted `json:"bytes,omitempty"`
	NotCounted string   `json:"notCounted,omitempty"`
}
