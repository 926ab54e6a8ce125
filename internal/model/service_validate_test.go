package model_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/model"
)

func TestServiceMistakes(t *testing.T) {
	real := func(text string) model.RealServer {
		return model.RealServer{Address: netip.MustParseAddr(text), Weight: 1}
	}
	for _, c := range []struct {
		change func(*model.VirtualService)
		want   string // in the error; empty for none
	}{
		{func(v *model.VirtualService) { v.Reals = []model.RealServer{real("10.0.0.2")} }, ""},
		{func(v *model.VirtualService) { v.Reals = []model.RealServer{real("fd00::2")} },
			"real server [fd00::2]: its address family differs from that of 192.0.2.80: create one service per"},
		{func(v *model.VirtualService) { v.Sorry = netip.MustParseAddrPort("[fd00::9]:80") },
			"sorry server [fd00::9]:80: its address family differs"},
		{func(v *model.VirtualService) { v.Reals = []model.RealServer{real("127.0.0.1")} },
			"real server 127.0.0.1: address 127.0.0.1: packets of clients cannot reach a loopback address"},
		{func(v *model.VirtualService) { v.Addresses = append(v.Addresses, v.Addresses[0]) },
			"address 192.0.2.80: it is listed twice"},
		{func(v *model.VirtualService) { v.Addresses = append(v.Addresses, netip.MustParseAddr("2001:db8::80")) },
			"address 2001:db8::80: its address family differs from that of 192.0.2.80"},
		{func(v *model.VirtualService) {
			v.Addresses, v.Forward = append(v.Addresses, netip.MustParseAddr("2001:db8::80")), model.ForwardLocal
		}, ""},
		{func(v *model.VirtualService) { v.Check = model.Check{Type: model.CheckHTTP, Body: "("} },
			`check: body "(": error parsing regexp: missing closing )`},
		{func(v *model.VirtualService) { v.Check = model.Check{Type: model.CheckTCP, Expect: "["} },
			`check: expect "["`},
		{func(v *model.VirtualService) { v.Check = model.Check{Type: model.CheckTCP, Interval: time.Millisecond} },
			"interval 1ms: want at least 10ms"},
		{func(v *model.VirtualService) {
			v.Check = model.Check{Type: model.CheckTCP, Interval: 400 * 24 * time.Hour}
		}, "interval 9600h0m0s: want at least 10ms, and at most 366 days"},
	} {
		v := model.VirtualService{Name: "web", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.80")},
			Ports: []model.PortRange{model.Port(80)}, Proto: model.TCP}
		c.change(&v)
		if err := v.Validate(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", v, err, c.want)
		}
	}
}
