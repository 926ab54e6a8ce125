package nat_test

import (
	"net/netip"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/publish/nat"
	"fairlead/test/modes"
)

func TestPlan(t *testing.T) { modes.Plans(t, nat.Mode{}) }

func TestRefuses(t *testing.T) {
	if err := (nat.Mode{}).Validate(model.Publish{Proto: model.TCP, ProxyProtocol: 1}); err == nil {
		t.Error("a PROXY header is accepted")
	}
	if err := (nat.Mode{}).Validate(model.Publish{Proto: model.TCP, Reset: true}); err == nil {
		t.Error("a reset is accepted")
	}
}

func TestIdentityRangeIsOneElement(t *testing.T) {
	p := nat.Mode{}.Publish(model.Publish{Proto: model.UDP, HostAddr: netip.IPv4Unspecified(),
		HostPorts: model.PortRange{First: 1, Last: 65535}, Ports: model.PortRange{First: 1, Last: 65535}}, modes.Both)
	n := 0
	for _, o := range p {
		if _, ok := o.(plan.NFTMapping); ok {
			n++
		}
	}
	if n != 1 {
		t.Errorf("65,535 ports are %d elements", n)
	}
}
