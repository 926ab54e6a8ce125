package nat_test

import (
	"net/netip"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/publish/nat"
	"fairlead/test/golden"
)

var addr, prefix = netip.MustParseAddr, netip.MustParsePrefix

// The endpoints: on a bridge with both families or one, and on its own link.
var (
	both   = plan.Attachment{Link: "fl-net", Addresses: []netip.Addr{addr("172.30.0.2"), addr("fd00:30::2")}, Bypass: []netip.Prefix{prefix("172.30.0.0/24"), prefix("fd00:30::/64")}}
	v4     = plan.Attachment{Link: "fl-net", Addresses: both.Addresses[:1], Bypass: both.Bypass[:1]}
	v6     = plan.Attachment{Link: "fl-net", Addresses: both.Addresses[1:], Bypass: both.Bypass[1:]}
	routed = plan.Attachment{Link: "fv-web", Addresses: both.Addresses, Bypass: []netip.Prefix{prefix("172.30.0.2/32"), prefix("fd00:30::2/128")}}
)

func TestPlan(t *testing.T) {
	ports := func(first, last uint16) model.PortRange { return model.PortRange{First: first, Last: last} }
	for _, c := range []struct {
		name string
		host string // empty is every address of both families
		from model.PortRange
		to   model.PortRange
		at   plan.Attachment
	}{
		{"single port", "", model.Port(8080), model.Port(80), both},
		{"single port to a routed endpoint", "", model.Port(8080), model.Port(80), routed},
		{"identity range", "", ports(8000, 8999), ports(8000, 8999), both},
		{"shifted range", "", ports(8000, 8002), ports(9000, 9002), both},
		{"identity port", "", model.Port(80), model.Port(80), both},
		{"every IPv4 address", "0.0.0.0", model.Port(8080), model.Port(80), both},
		{"every IPv6 address", "::", model.Port(8080), model.Port(80), both},
		{"one address", "198.51.100.2", model.Port(8080), model.Port(80), both},
		{"one address, identity range", "2001:db8:1::2", ports(8000, 8999), ports(8000, 8999), both},
		{"127.0.0.1", "127.0.0.1", model.Port(8080), model.Port(80), both},
		{"::1", "::1", model.Port(8080), model.Port(80), both},
		{"v4 endpoint", "", model.Port(8080), model.Port(80), v4},
		{"v6 endpoint", "", model.Port(8080), model.Port(80), v6},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := model.Publish{Endpoint: "web", Via: model.ViaNAT, Proto: model.TCP, HostPorts: c.from, Ports: c.to}
			if c.host != "" {
				p.HostAddr = addr(c.host)
			}
			if err := (nat.Way{}).Validate(p); err != nil {
				t.Fatal(err)
			}
			golden.Text(t, c.name, golden.Session(nat.Way{}.Publish(p, c.at)))
		})
	}
}

func TestRefuses(t *testing.T) {
	if err := (nat.Way{}).Validate(model.Publish{Proto: model.TCP, ProxyProtocol: 1}); err == nil {
		t.Error("a PROXY header is accepted")
	}
}

func TestAnIdentityRangeIsOneElement(t *testing.T) {
	p := nat.Way{}.Publish(model.Publish{Proto: model.UDP, HostAddr: addr("0.0.0.0"),
		HostPorts: model.PortRange{First: 1, Last: 65535}, Ports: model.PortRange{First: 1, Last: 65535}}, both)
	n := 0
	for _, o := range p {
		if _, ok := o.(plan.Mapping); ok {
			n++
		}
	}
	if n != 1 {
		t.Errorf("65,535 ports are %d elements", n)
	}
}
