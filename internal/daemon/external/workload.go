package external

import (
	"net/netip"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
)

// Translated reports whether a workload's socket is where its publishes and its policy
// for other ports would have put it.
func Translated(s sockdiag.Bound, unpublished model.Unpublished, publishes []model.Publish) bool {
	at, port := s.At.Addr(), model.Port(s.At.Port())
	listed := false
	for _, p := range publishes {
		if p.Proto != s.Proto {
			continue
		}
		if p.HostPorts.Overlaps(port) && mayBindAt(p, at) {
			return true
		}
		listed = listed || p.Ports.Overlaps(port) && p.Accepts(at)
	}
	switch unpublished {
	case model.UnpublishedDeny:
		return false
	case model.UnpublishedAllow:
		return !listed
	}
	return !listed && at.IsLoopback()
}

// mayBindAt reports whether a bind to a published port may get the address.
func mayBindAt(p model.Publish, at netip.Addr) bool {
	return p.AcceptsFamily(at.Is4()) && (p.AnyAddr() || p.HostAddr == at)
}

// RestartProblem is the problem of an attachment whose workload needs a restart, or
// empty.
func RestartProblem(a model.Attachment) string {
	if !a.NeedsRestart {
		return ""
	}
	return "it bound ports before they were published, and these are not mapped: restart it"
}

// Workload returns the attachment and the publishes of a workload, or why they are not
// possible.
func Workload(w api.Workload) (a model.Attachment, publishes []model.Publish, err error) {
	a = model.Attachment{Ref: w.Ref, Private: true, Origin: model.FromDocker,
		Endpoint: model.Endpoint{Name: w.Name, Network: api.HostNetwork, Cgroup: w.Cgroup, Unpublished: w.Unpublished}}
	if w.Wrong != nil {
		return a, nil, w.Wrong
	}
	if a.Namespace, err = CgroupID(w.Cgroup); err != nil {
		return a, nil, err
	}
	for _, p := range w.Publishes {
		p.Endpoint, p.Via, p.Origin = w.Name, model.ViaSocket, model.FromDocker
		publishes = append(publishes, p)
	}
	alone := model.State{Networks: hostNetworks(nil), Endpoints: []model.Endpoint{a.Endpoint}, Publishes: publishes}
	return a, publishes, alone.Validate()
}

// WithWorkload returns the desired state with the workload's attachment and publishes.
func WithWorkload(w model.Desired, a model.Attachment, publishes []model.Publish) model.Desired {
	w = w.WithAttachment(a)
	w.Networks = hostNetworks(w.Networks)
	return w.SetPublishes(a.Name, model.FromDocker, publishes)
}

// hostNetworks returns the networks including HostNetwork.
func hostNetworks(all []model.Network) []model.Network {
	if slices.ContainsFunc(all, func(n model.Network) bool { return n.Name == api.HostNetwork }) {
		return all
	}
	return append(slices.Clone(all), model.Network{Name: api.HostNetwork, Driver: model.DriverHost,
		Origin: model.FromDocker})
}
