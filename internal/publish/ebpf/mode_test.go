package ebpf_test

import (
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/publish/ebpf"
	"fairlead/test/modes"
)

func TestPlan(t *testing.T) { modes.Plans(t, ebpf.Mode{}) }

func TestRefuses(t *testing.T) {
	if err := (ebpf.Mode{}).Validate(model.Publish{Proto: model.TCP, ProxyProtocol: 1}); err == nil {
		t.Error("a PROXY header is accepted")
	}
	if err := (ebpf.Mode{}).Reaches(plan.Attachment{}); err == nil {
		t.Error("an endpoint without its own network namespace is accepted")
	}
	portless, shaped := modes.Both, modes.Both
	portless.Port, shaped.Shaped = "", true
	for what, a := range map[string]plan.Attachment{"without a link end on the host": portless,
		"with a receive limit": shaped} {
		if err := (ebpf.Mode{}).Reaches(a); err == nil {
			t.Errorf("an endpoint %s is accepted", what)
		}
	}
}

func TestRangeIsOneEntryPerFamily(t *testing.T) {
	ports := model.PortRange{First: 1, Last: 65535}
	p := ebpf.Mode{}.Publish(model.Publish{Proto: model.UDP, HostPorts: ports, Ports: ports}, modes.Both)
	if len(p) != 2 {
		t.Errorf("65,535 ports of two families are %d objects", len(p))
	}
}

func TestSharedHasEverySandbox(t *testing.T) {
	p := ebpf.Mode{}.Shared([]plan.Attachment{modes.Both, modes.Routed, {}, {Link: "fm-net"}})
	want := map[plan.Object]bool{plan.Uplinks{}: true, plan.LocalClients{}: true,
		plan.SandboxIngress(modes.Both.Port, modes.Both.Addresses):     true,
		plan.SandboxIngress(modes.Routed.Port, modes.Routed.Addresses): true,
		plan.Ingress{Link: "fm-net", Shared: true}:                     true}
	if len(p) != len(want) {
		t.Errorf("Shared plans %v", p)
	}
	for _, o := range p {
		if !want[o] {
			t.Errorf("Shared plans %v, want no such object", o)
		}
	}
}
