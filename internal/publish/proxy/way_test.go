package proxy_test

import (
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/publish/proxy"
	"fairlead/test/golden"
	"fairlead/test/ways"
)

func TestPlan(t *testing.T) { ways.Plans(t, proxy.Way{}) }

func TestHeader(t *testing.T) {
	p := model.Publish{Endpoint: "web", Via: model.ViaProxy, Proto: model.TCP, HostPorts: model.Port(8080), Ports: model.Port(80), ProxyProtocol: 2}
	if err := (proxy.Way{}).Validate(p); err != nil {
		t.Error(err)
	}
	golden.Text(t, "PROXY header", golden.Session(proxy.Way{}.Publish(p, ways.Both)))
	p.Proto = model.UDP
	if err := (proxy.Way{}).Validate(p); err == nil {
		t.Error("a PROXY header for UDP is accepted")
	}
	if err := (proxy.Way{}).Validate(model.Publish{Proto: model.TCP, Reset: true}); err == nil {
		t.Error("a reset is accepted")
	}
}
