// Package ebpf publishes a port by eBPF programs of our own, past the host's
// bridge, netfilter and conntrack. The programs are in the folder bpf at the
// top; here they are only planned.
//
// Theory of operation. A program at the ingress of each uplink rewrites the
// destination and puts the packet into the sandbox, as if it had been received
// there; one where packets come from the sandbox finds the flow of an answer,
// gives it the address and port that the client had dialled, and sends it out
// by the link that the client came by. Processes of the host are turned at
// connect and sendmsg, and then speak to the endpoint itself: no packet of
// theirs is touched.
//
//	client ── uplink ─[ eBPF ]─ sandbox's link ── endpoint
//	host process ─[ connect ]─ host's routing ── endpoint
//
// A publish is one entry of a table for each family, whatever its number of
// ports. No socket holds the ports: a hook refuses them to other programs.
// Only where a client's family is not the endpoint's must the user-space proxy
// carry the bytes, and then its sockets hold the ports; processes of the host
// that dial ::1 reach an IPv4 endpoint without it.
//
// Kernel: 5.14 with cgroup v2; TCX from 6.6 on, cls_bpf before. Links whose
// headers are neither Ethernet's nor absent (InfiniBand) are no uplinks.
package ebpf

import (
	"errors"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/publish"
)

// Mode implements publish.Way.
type Mode struct{}

// Name implements publish.Way.
func (Mode) Name() model.Via { return model.ViaEBPF }

// Needs implements publish.Way.
func (Mode) Needs() []plan.Feature {
	return []plan.Feature{plan.FeatureEBPF, plan.FeatureCgroupHooks}
}

// Validate implements publish.Way.
func (Mode) Validate(p model.Publish) error {
	if p.ProxyProtocol != 0 {
		return errors.New("ebpf keeps the client's address and sends no PROXY header: leave it out, or publish via proxy")
	}
	return nil
}

// Reaches implements publish.Way.
func (Mode) Reaches(a plan.Attachment) error {
	switch {
	case a.Link != "" && a.Port == "":
		return errors.New("the endpoint has no end of its link on the host, to lead packets to: publish it via nat")
	case a.Internal:
		return errors.New("an internal network has no eBPF programs, which would let it reach others' ports: publish it via nat")
	case a.Shaped:
		return errors.New("the short-cut passes by the bound on what the endpoint receives: publish it via nat, or lift the bound")
	}
	return publish.Sandboxed(a)
}

// Shared implements publish.Way.
func (Mode) Shared(all []plan.Attachment) plan.Plan { return plan.AttachPrograms(all) }

// Publish implements publish.Way.
func (Mode) Publish(p model.Publish, a plan.Attachment) plan.Plan {
	var all plan.Plan
	proxied := proxied(p, a)
	for _, host := range publish.Hosts(p) {
		target, ok := a.Address(host.Is4())
		if !ok && host.Is6() {
			target, ok = a.Address(true)
		}
		if !ok {
			continue
		}
		gateway, _ := a.Gateway(target.Is4())
		all = append(all, plan.EBPFMapping{Proto: p.Proto, Host: host, Ports: p.HostPorts, To: target, ToPorts: p.Ports,
			Link: a.Port, Masquerade: gateway, Reserved: proxied, Reset: p.Reset})
	}
	if proxied {
		all = append(all, publish.Listener(p, a))
	}
	return all
}

// proxied reports whether clients may come whose family the endpoint lacks.
func proxied(p model.Publish, a plan.Attachment) bool {
	for _, v4 := range []bool{true, false} {
		if _, has := a.Address(v4); !has && p.AcceptsFamily(v4) {
			return true
		}
	}
	return false
}
