package proxy_test

import (
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/publish/proxy"
	"fairlead/test/golden"
	"fairlead/test/modes"
)

func TestPlan(t *testing.T) { modes.Plans(t, proxy.Mode{}) }

func TestHeader(t *testing.T) {
	p := model.Publish{Endpoint: "web", Via: model.ViaProxy, Proto: model.TCP, HostPorts: model.Port(8080),
		Ports: model.Port(80), ProxyProtocol: 2}
	if err := (proxy.Mode{}).Validate(p); err != nil {
		t.Error(err)
	}
	golden.Text(t, "PROXY header", golden.Session(proxy.Mode{}.Publish(p, modes.Both)))
	p.Proto = model.UDP
	if err := (proxy.Mode{}).Validate(p); err == nil {
		t.Error("a PROXY header for UDP is accepted")
	}
	if err := (proxy.Mode{}).Validate(model.Publish{Proto: model.TCP, Reset: true}); err == nil {
		t.Error("a reset is accepted")
	}
}
