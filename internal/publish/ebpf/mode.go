// Package ebpf publishes a port with Fairlead's eBPF programs. The packets bypass
// the host's bridge, netfilter and conntrack. The programs are in the folder bpf
// of the repository. This package only plans them.
//
// Theory of operation. A program at the ingress of each uplink rewrites the
// destination and redirects the packet into the sandbox, as if it had been
// received there. A program where packets come from the sandbox finds the flow of
// an answer, restores the address and port that the client dialled, and sends the
// answer out on the link that the client's packets came in on. Sockets of the
// host's processes are redirected at connect and sendmsg. They then communicate
// with the endpoint directly, and none of their packets is changed.
//
//	client ── uplink ─[ eBPF ]─ sandbox's link ── endpoint
//	host process ─[ connect ]─ host's routing ── endpoint
//
// A publish is one entry of a table per family, for any number of ports. No socket
// reserves the ports: a hook refuses them to other programs. Only if the
// endpoint has no address in a client's family, the user-space proxy forwards the
// bytes, and then its sockets reserve the ports. Processes of the host that dial
// ::1 reach an IPv4 endpoint without the proxy.
//
// Kernel: 5.14 with cgroup v2; TCX from 6.6 on, cls_bpf before. Links with
// headers of another type than Ethernet (InfiniBand) are not uplinks; links
// without headers can be.
package ebpf

import (
	"errors"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/publish"
)

// Mode implements publish.Mode.
type Mode struct{}

// Name implements publish.Mode.
func (Mode) Name() model.Via { return model.ViaEBPF }

// Carrier implements publish.Mode.
func (Mode) Carrier() model.Carrier { return model.CarrierPrograms }

// Needs implements publish.Mode.
func (Mode) Needs() []plan.Feature {
	return []plan.Feature{plan.FeatureEBPF, plan.FeatureCgroupHooks}
}

// Validate implements publish.Mode.
func (Mode) Validate(p model.Publish) error {
	if p.ProxyProtocol != 0 {
		return errors.New("ebpf keeps the client's address and sends no PROXY header: leave it out, or publish via proxy")
	}
	return nil
}

// Reaches implements publish.Mode.
func (Mode) Reaches(a plan.Attachment) error {
	switch {
	case a.Link != "" && a.Port == "":
		return errors.New("the endpoint's link has no end on the host that packets can be redirected to: publish it via nat")
	case a.Internal:
		return errors.New("an internal network has no eBPF programs, because they would let it reach ports of other networks: publish it via nat")
	case a.Away:
		return errors.New("the sandbox's default route is on another network, so its answers do not pass the eBPF program: publish it via nat")
	case a.Shaped:
		return errors.New("ebpf bypasses the limit on what the endpoint receives: publish it via nat, or remove the limit")
	}
	return publish.Sandboxed(a)
}

// Shared implements publish.Mode.
func (Mode) Shared(all []plan.Attachment) plan.Plan { return plan.AttachPrograms(all) }

// Publish implements publish.Mode.
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

// proxied reports whether the publish accepts clients of a family in which the
// endpoint has no address.
func proxied(p model.Publish, a plan.Attachment) bool {
	for _, v4 := range []bool{true, false} {
		if _, has := a.Address(v4); !has && p.AcceptsFamily(v4) {
			return true
		}
	}
	return false
}
