// Package socket publishes a port of a workload that runs in the host's network
// namespace. It changes the port numbers in the workload's socket calls. The
// programs are in the folder bpf of the repository. This package only plans them.
//
// Theory of operation. Programs at the socket calls of the workload's cgroup
// replace the port that the workload binds with the host port that was granted to
// it. When the workload asks for the socket's port, they return the port that it
// bound. Its socket is a normal socket of the host: packets take the same path as
// to every process of the host, and Fairlead touches none. A port that the
// workload binds and that is not published is moved to the loopback address,
// refused or left open, as the endpoint configures. Programs at the root cgroup
// refuse a granted port to every other process.
//
//	client ── host's stack ── the workload's socket, bound to 8080
//	workload ── bind 80 ──[ eBPF ]── bind 8080
//
// If the workload dials a port on the host, its own ports come first, then those
// of the one other workload that has the port. A publish is one grant per family,
// for any number of ports.
//
// Kernel: 5.14 with cgroup v2. Limits: a socket that another process created
// (socket activation) is not the workload's. A socket that listens without a bind
// gets a free port, which is open.
package socket

import (
	"cmp"
	"errors"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/publish"
)

// Mode implements publish.Mode.
type Mode struct{}

// Name implements publish.Mode.
func (Mode) Name() model.Via { return model.ViaSocket }

// Carrier implements publish.Mode.
func (Mode) Carrier() model.Carrier { return model.CarrierHooks }

// Needs implements publish.Mode.
func (Mode) Needs() []plan.Feature { return []plan.Feature{plan.FeatureCgroupHooks} }

// Validate implements publish.Mode.
func (Mode) Validate(p model.Publish) error {
	if p.ProxyProtocol != 0 {
		return errors.New("socket does not change the client's connection and sends no PROXY header: leave it out")
	}
	if p.Reset {
		return errors.New("socket cannot reset connections, they belong to the workload: leave reset out, or publish via ebpf")
	}
	return nil
}

// Reaches implements publish.Mode.
func (Mode) Reaches(a plan.Attachment) error {
	if a.Cgroup == "" {
		return errors.New("socket identifies a workload of driver host by its cgroup: give the endpoint the workload's cgroup, or start it with `fairlead run`")
	}
	return nil
}

// Shared implements publish.Mode. It plans the hooks at the root cgroup that refuse
// granted ports to all other processes.
func (Mode) Shared([]plan.Attachment) plan.Plan { return plan.Plan{plan.LocalClients{}} }

// Publish implements publish.Mode.
func (Mode) Publish(p model.Publish, a plan.Attachment) plan.Plan {
	all := plan.Plan{plan.BindHooks{Cgroup: a.Cgroup, Unpublished: cmp.Or(a.Unpublished, model.UnpublishedLoopback)}}
	for _, host := range publish.Hosts(p) {
		all = append(all, plan.Grant{Cgroup: a.Cgroup, Proto: p.Proto, Host: host, Ports: p.HostPorts, Own: p.Ports})
	}
	return all
}
