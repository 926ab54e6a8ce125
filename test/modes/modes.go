// Package modes contains the publishes that every publish mode is tested with, so
// that their golden files can be compared.
package modes

import (
	"net/netip"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/publish"
	"fairlead/test/golden"
)

var addr, prefix = netip.MustParseAddr, netip.MustParsePrefix

// The endpoints: on a bridge with both families or one of them, on a separate link, and a workload
// in the host's network namespace.
var (
	Both = plan.Attachment{Link: "fl-net", Addresses: []netip.Addr{addr("172.30.0.2"), addr("fd00:30::2")},
		Bypass: []plan.Bypass{plan.Within(prefix("172.30.0.0/24")), plan.Within(prefix("fd00:30::/64"))},
		Port:   "fv-web", Gateways: []netip.Addr{addr("172.30.0.1"), addr("fd00:30::1")}}
	Host = plan.Attachment{Cgroup: "/sys/fs/cgroup/web"}
	V4   = plan.Attachment{Link: "fl-net", Addresses: Both.Addresses[:1], Bypass: Both.Bypass[:1], Port: Both.Port,
		Gateways: Both.Gateways}
	V6 = plan.Attachment{Link: "fl-net", Addresses: Both.Addresses[1:], Bypass: Both.Bypass[1:], Port: Both.Port,
		Gateways: Both.Gateways}
	Routed = plan.Attachment{Link: "fv-web", Port: "fv-peer", Gateways: Both.Gateways, Addresses: Both.Addresses,
		Bypass: []plan.Bypass{plan.Within(prefix("172.30.0.2/32")), plan.Within(prefix("fd00:30::2/128"))}}
)

// Plans compares the plan of a publish mode for each scenario with its golden file.
func Plans(t *testing.T, direction publish.Mode) {
	ports := func(first, last uint16) model.PortRange { return model.PortRange{First: first, Last: last} }
	for _, c := range []struct {
		name string
		host string // empty means every address of both families
		from model.PortRange
		to   model.PortRange
		at   plan.Attachment
	}{
		{"single port", "", model.Port(8080), model.Port(80), Both},
		{"single port to a routed endpoint", "", model.Port(8080), model.Port(80), Routed},
		{"identity range", "", ports(8000, 8999), ports(8000, 8999), Both},
		{"shifted range", "", ports(8000, 8002), ports(9000, 9002), Both},
		{"identity port", "", model.Port(80), model.Port(80), Both},
		{"every IPv4 address", "0.0.0.0", model.Port(8080), model.Port(80), Both},
		{"every IPv6 address", "::", model.Port(8080), model.Port(80), Both},
		{"one address", "198.51.100.2", model.Port(8080), model.Port(80), Both},
		{"one address, identity range", "2001:db8:1::2", ports(8000, 8999), ports(8000, 8999), Both},
		{"127.0.0.1", "127.0.0.1", model.Port(8080), model.Port(80), Both},
		{"::1", "::1", model.Port(8080), model.Port(80), Both},
		{"v4 endpoint", "", model.Port(8080), model.Port(80), V4},
		{"v6 endpoint", "", model.Port(8080), model.Port(80), V6},
	} {
		t.Run(c.name, func(t *testing.T) {
			if direction.Reaches(Host) == nil {
				c.at = Host
			}
			p := model.Publish{Endpoint: "web", Via: direction.Name(), Proto: model.TCP, HostPorts: c.from, Ports: c.to}
			if c.host != "" {
				p.HostAddr = addr(c.host)
			}
			if err := direction.Validate(p); err != nil {
				t.Fatal(err)
			}
			golden.Text(t, c.name, golden.Session(direction.Publish(p, c.at)))
		})
	}
}
