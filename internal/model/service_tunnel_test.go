package model_test

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/model"
)

func TestTunnels(t *testing.T) {
	for _, c := range []struct {
		forward model.Forward
		tunnel  model.Tunnel
		want    string
	}{
		{model.ForwardTunnel, model.Tunnel{}, ""},
		{model.ForwardTunnel, model.Tunnel{Type: model.TunnelGUE, Port: 6080}, ""},
		{model.ForwardTunnel, model.Tunnel{Type: model.TunnelGUE, Port: 6080, Checksum: model.TunnelSummed}, ""},
		{model.ForwardTunnel, model.Tunnel{Type: model.TunnelGUE}, "want the UDP port"},
		{model.ForwardTunnel, model.Tunnel{Port: 6080}, "neither a port"},
		{model.ForwardTunnel, model.Tunnel{Type: "gre", Port: 6080}, "want ipip or gue"},
		{model.ForwardTunnel, model.Tunnel{Type: model.TunnelGUE, Port: 6080, Checksum: "crc"}, "want csum, remcsum"},
		{model.ForwardDirect, model.Tunnel{Type: model.TunnelGUE, Port: 6080},
			"does not forward packets through a tunnel"},
	} {
		v := model.VirtualService{Name: "web", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.80")},
			Ports: []model.PortRange{model.Port(80)},
			Proto: model.TCP, Forward: c.forward, Tunnel: c.tunnel}
		if err := v.Validate(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("forward %s, tunnel %s: %v, want %q", c.forward, c.tunnel, err, c.want)
		}
	}
}
