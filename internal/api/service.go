package api

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/model"
)

// ServiceRequest creates or changes a virtual service.
type ServiceRequest struct {
	model.VirtualService
	// Was, if set, is the service as the caller knows it. If the service differs from
	// it, the request fails with the code Conflict.
	Was *model.VirtualService `json:"was,omitempty"`
	// Create refuses to change a service that already exists.
	Create bool `json:"create,omitempty"`
	DryRun bool `json:"dryRun,omitempty"`
}

// OwnReal is an attachment of this host that a selector of a service has found.
type OwnReal struct {
	Endpoint string
	Address  netip.Addr
	// Port 0 keeps the port that the client connected to.
	Port   uint16
	Weight int
	// Draining gets no new flows.
	Draining bool
}

// SelectedSandbox is a sandbox of this host that a selector of the cluster's gateway has found.
type SelectedSandbox struct {
	By       model.Select
	Endpoint string
	Address  netip.Addr
	// Draining gets no new requests or connections.
	Draining bool
	// Down is why it gets none at all; empty if it gets some.
	Down string
}

// RealStatus is the state of a real server.
type RealStatus string

// The states. A member's is empty if only its checks determine the state.
const (
	RealUp   RealStatus = "up"
	RealDown RealStatus = "down"
	// RealDraining keeps its open flows, RealDrained has none.
	RealDraining RealStatus = "draining"
	RealDrained  RealStatus = "drained"
	// RealDisabled was disabled by its administrator, and its flows were ended.
	RealDisabled RealStatus = "disabled"
	// RealSorry is the sorry server while it is in use.
	RealSorry RealStatus = "sorry"
)

// RealAction is what to do with a real server.
type RealAction string

// The actions.
const (
	// DrainReal gives it no new flows until EnableReal.
	DrainReal RealAction = "drain"
	// EnableReal reverts DrainReal. It also brings back a server that passive checks
	// have taken out.
	EnableReal RealAction = "enable"
	// RemoveReal removes it from its service after a drain.
	RemoveReal RealAction = "remove"
)

// RealRequest is a request to change a real server.
type RealRequest struct {
	Service string `json:"service"`
	// Real is its address, with or without port, or the name of its attachment or its
	// sandbox.
	Real string     `json:"real"`
	Do   RealAction `json:"do"`
	// Deadline bounds the drain. If 0, the service's setting applies.
	Deadline time.Duration `json:"deadline,omitempty"`
	// Now ends its flows at once instead of draining it.
	Now bool `json:"now,omitempty"`
}

// ServiceStatus is the state of a virtual service.
type ServiceStatus string

// The states of a virtual service.
const (
	// ServiceUp has its quorum.
	ServiceUp ServiceStatus = "up"
	// ServiceDown has fewer real servers up than its quorum.
	ServiceDown ServiceStatus = "down"
	// ServiceSorry has fewer than its quorum, and sends clients to its sorry server.
	ServiceSorry ServiceStatus = "sorry"
	// ServicePanics has so few servers up that it uses all of them.
	ServicePanics ServiceStatus = "panic"
	// ServiceFailed could not be applied.
	ServiceFailed ServiceStatus = "failed"
)

// ServiceView is a virtual service with its state.
type ServiceView struct {
	// VirtualService is the desired service.
	model.VirtualService
	// PlaneInUse is the data plane that the daemon chose.
	PlaneInUse model.Plane   `json:"planeInUse,omitempty"`
	Status     ServiceStatus `json:"status"`
	// Problem says why the service, or a part of it, is not applied.
	Problem string `json:"problem,omitempty"`
	// FastPath are the links with the fast path, or where the driver refuses it. Only
	// Service sets it.
	FastPath []model.FastLink `json:"fastPath,omitempty"`
	// Servers are the current real servers.
	Servers []RealView `json:"servers"`
	// Own are those that a selector has found on this host, for the other nodes of a cluster.
	Own []OwnReal `json:"-"`
}

// RealView is a real server with its state.
type RealView struct {
	// Address and Port are the server's. Port 0 is the port that the client has
	// connected to.
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port,omitempty"`
	// Weight is the desired weight. Share is the percentage of it that the server has
	// now: less than 100 during a slow start, or if its agent reports less.
	Weight int `json:"weight"`
	Share  int `json:"share"`
	// Endpoint is the server's attachment, and Selected the selector that has found
	// it.
	Endpoint string `json:"endpoint,omitempty"`
	Selected string `json:"selected,omitempty"`
	// State is its state in the data plane, and Cause the reason.
	State RealStatus `json:"state"`
	Cause string     `json:"cause,omitempty"`
	// Since is when this state began.
	Since time.Time `json:"since"`
	// Deadline is the end of its drain, if it has one.
	Deadline time.Time `json:"deadline,omitzero"`
	// Until is the time at which a server gets clients again that passive checks have
	// taken out. It is set only if the server has no active check.
	Until time.Time `json:"until,omitzero"`
	// Leaving says that the server is removed when its drain ends.
	Leaving bool `json:"leaving,omitempty"`
	// Checked is the time of the last check, Found its result, and Latency its
	// duration. State follows when the data plane has the change.
	Checked time.Time     `json:"checked,omitzero"`
	Found   string        `json:"found,omitempty"`
	Latency time.Duration `json:"latency,omitempty"`
	// Flows is the number of open flows; nil if the data plane does not count them.
	Flows *uint64 `json:"flows,omitempty"`
	// Nodes has what the other nodes of the cluster that accept the service's clients find, while a node
	// finds the server down. Removed says that all nodes that answer find it down.
	Nodes   []NodeFinding `json:"nodes,omitempty"`
	Removed bool          `json:"removed,omitempty"`
}

// NodeFinding is what the checks of another node find of a real server.
type NodeFinding struct {
	Node string `json:"node"`
	// State is RealUp or RealDown, empty if it is not known.
	State RealStatus `json:"state,omitempty"`
	// Problem says why the node does not answer.
	Problem string `json:"problem,omitempty"`
}

// Urgency is how soon a state needs attention.
type Urgency int

// The urgencies, in the order in which people want to see the states.
const (
	UrgentFailed Urgency = iota
	UrgentChanging
	UrgentUnknown
	UrgentNot
)

// Urgency returns that of the state of a real server.
func (s RealStatus) Urgency() Urgency {
	switch s {
	case RealUp:
		return UrgentNot
	case RealDown:
		return UrgentFailed
	case "":
		return UrgentUnknown
	}
	return UrgentChanging
}

// Urgency returns that of the state of the service.
func (v ServiceView) Urgency() Urgency {
	switch {
	case v.Status == ServiceUp && v.Problem == "":
		return UrgentNot
	case v.Status == ServiceUp, v.Status == ServiceSorry, v.Status == ServicePanics:
		return UrgentChanging
	}
	return UrgentFailed
}

// ServiceTotal is how many services and real servers there are.
type ServiceTotal struct {
	Services int `json:"services"`
	Reals    int `json:"reals"`
}

// FirstServices are the most urgent services and real servers. Their settings have no real servers.
type FirstServices struct {
	Services []ServiceView
	Total    ServiceTotal
}

// FirstServicesOf returns the n most urgent services, the n most urgent real servers, and the services of these. The
// services keep their order; the real servers of each are in the order of their urgency.
func FirstServicesOf(all []ServiceView, n int) FirstServices {
	type real struct{ service, server int }
	var reals []real
	services := make([]int, len(all))
	for i, s := range all {
		services[i] = i
		for j := range s.Servers {
			reals = append(reals, real{i, j})
		}
	}
	first := FirstServices{Total: ServiceTotal{len(services), len(reals)}}
	slices.SortStableFunc(services, func(a, b int) int { return int(all[a].Urgency() - all[b].Urgency()) })
	slices.SortStableFunc(reals, func(a, b real) int {
		return int(all[a.service].Servers[a.server].State.Urgency() - all[b.service].Servers[b.server].State.Urgency())
	})
	shown := map[int][]RealView{}
	for _, i := range services[:max(0, min(n, len(services)))] {
		shown[i] = nil
	}
	for _, r := range reals[:max(0, min(n, len(reals)))] {
		shown[r.service] = append(shown[r.service], all[r.service].Servers[r.server])
	}
	for _, i := range slices.Sorted(maps.Keys(shown)) {
		s := all[i]
		s.Servers, s.Reals = shown[i], nil
		first.Services = append(first.Services, s)
	}
	return first
}

// WrongServices returns the services that are not up, or have a problem or a real server that is not up. They have only
// those real servers, and their settings have none.
func WrongServices(all []ServiceView) (wrong []ServiceView) {
	for _, s := range all {
		var out []RealView
		for _, r := range s.Servers {
			if r.State != RealUp {
				out = append(out, r)
			}
		}
		s.Reals = nil
		if s.Servers = out; s.Status != ServiceUp || s.Problem != "" || len(out) > 0 {
			wrong = append(wrong, s)
		}
	}
	return wrong
}
