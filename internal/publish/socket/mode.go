// Package socket publishes a port of a workload that runs in the host's own
// network namespace, by what its socket calls mean. The programs are in the
// folder bpf at the top; here they are only planned.
//
// Theory of operation. Programs at the socket calls of the workload's cgroup
// put the host port that it was granted in place of the port that it binds,
// and tell it its own where it asks. Its socket is the host's: packets go the
// way that they go to every process of the host, and nothing of ours touches
// any. What it binds and nobody published is moved to the loopback address,
// refused or left, as the endpoint says. Programs at the root of the cgroups
// refuse a granted port to everyone else.
//
//	client ── host's stack ── the workload's socket, bound to 8080
//	workload ── bind 80 ──[ eBPF ]── bind 8080
//
// Where the workload dials a port on the host, its own ports come first, then
// those of the one other workload that has the port. A publish is one grant
// for each family, whatever its number of ports.
//
// Kernel: 5.14 with cgroup v2. Limits: a socket that another process has made
// (socket activation) is not the workload's; one that listens without a bind
// gets a free port, which is open.
package socket

import (
	"cmp"
	"errors"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/publish"
)

// Mode implements publish.Way.
type Mode struct{}

// Name implements publish.Way.
func (Mode) Name() model.Via { return model.ViaSocket }

// Needs implements publish.Way.
func (Mode) Needs() []plan.Feature { return []plan.Feature{plan.FeatureCgroupHooks} }

// Validate implements publish.Way.
func (Mode) Validate(p model.Publish) error {
	if p.ProxyProtocol != 0 {
		return errors.New("socket leaves the client's own connection to the workload and sends no PROXY header: leave it out")
	}
	if p.Reset {
		return errors.New("socket leaves connections to the workload and resets none: leave reset out, or publish via ebpf")
	}
	return nil
}

// Reaches implements publish.Way.
func (Mode) Reaches(a plan.Attachment) error {
	if a.Cgroup == "" {
		return errors.New("socket tells a workload of driver host by its cgroup: give the endpoint the workload's, or start it by `fairlead run`")
	}
	return nil
}

// Shared implements publish.Way: the hooks at the root keep granted ports
// from everyone else.
func (Mode) Shared([]plan.Attachment) plan.Plan { return plan.Plan{plan.LocalClients{}} }

// Publish implements publish.Way.
func (Mode) Publish(p model.Publish, a plan.Attachment) plan.Plan {
	all := plan.Plan{plan.BindHooks{Cgroup: a.Cgroup, Unpublished: cmp.Or(a.Unpublished, model.UnpublishedLoopback)}}
	for _, host := range publish.Hosts(p) {
		all = append(all, plan.Grant{Cgroup: a.Cgroup, Proto: p.Proto, Host: host, Ports: p.HostPorts, Own: p.Ports})
	}
	return all
}
