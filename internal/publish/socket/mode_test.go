package socket_test

import (
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/publish/socket"
	"fairlead/test/modes"
)

func TestPlan(t *testing.T) { modes.Plans(t, socket.Mode{}) }

func TestRefuses(t *testing.T) {
	for name, p := range map[string]model.Publish{
		"a PROXY header": {Proto: model.TCP, ProxyProtocol: 1},
		"a reset":        {Proto: model.TCP, Reset: true},
	} {
		if err := (socket.Mode{}).Validate(p); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if err := (socket.Mode{}).Reaches(plan.Attachment{Link: "fl-net"}); err == nil {
		t.Error("an endpoint without a cgroup is accepted")
	}
}

func TestRangeIsOneGrantPerFamily(t *testing.T) {
	ports := model.PortRange{First: 1, Last: 65535}
	grants := 0
	for _, o := range (socket.Mode{}).Publish(model.Publish{Proto: model.UDP, HostPorts: ports, Ports: ports},
		plan.Attachment{Cgroup: "/sys/fs/cgroup/web"}) {
		if _, ok := o.(plan.Grant); ok {
			grants++
		}
	}
	if grants != 2 {
		t.Errorf("65,535 ports are %d grants", grants)
	}
}
