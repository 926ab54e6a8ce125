package daemon_test

import (
	"context"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// TestOverlap refuses subnets that the host reaches without Fairlead, unless the
// network allows them. A network that has its subnet already can be applied again
// and changed.
func TestOverlap(t *testing.T) {
	w := newWorld(t).start()
	w.sh("set -e; ip link add eth0 type veth peer name lan; ip link set lan up; ip link set eth0 up; ip addr add 192.0.2.1/24 dev eth0; ip addr add fd00:2::1/64 dev eth0 nodad; " +
		"ip route add default via 192.0.2.254; ip route add 0.0.0.0/1 via 192.0.2.254; ip route add 128.0.0.0/1 via 192.0.2.254; " +
		"ip route add 10.0.0.0/8 via 192.0.2.254; ip route add 10.200.0.0/16 dev eth0; ip route add blackhole 203.0.113.0/24")
	shop := func(subnets ...string) model.Network {
		n := model.Network{Name: "shop", Driver: model.DriverBridge}
		for _, s := range subnets {
			n.Subnets = append(n.Subnets, model.Subnet{Prefix: prefix(s)})
		}
		return n
	}
	for subnet, want := range map[string]string{
		"192.0.2.128/25": "overlaps 192.0.2.0/24 on eth0",
		"192.0.0.0/16":   "overlaps 192.0.2.0/24 on eth0",
		"fd00:2::/80":    "overlaps fd00:2::/64 on eth0",
		"10.9.0.0/24":    "overlaps 10.0.0.0/8 via 192.0.2.254",
		"10.200.0.0/24":  "overlaps 10.",
	} {
		_, err := w.CreateNetwork(shop(subnet), false)
		if api.CodeOf(err) != api.Conflict || !strings.Contains(err.Error(), want) {
			t.Errorf("create with %s: %v, want %q", subnet, err, want)
		}
		_, err = w.Apply(context.Background(), api.Spec{Networks: []model.Network{shop(subnet)}}, false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("apply with %s: %v, want %q", subnet, err, want)
		}
	}
	if n := w.Networks(); len(n) != 0 {
		t.Fatalf("refused networks exist: %v", n)
	}
	w.network(model.Network{Name: "mac", Driver: model.DriverMacvlan, Parent: "eth0",
		Subnets: shop("192.0.2.0/24").Subnets})
	if _, err := w.RemoveNetwork("mac"); err != nil {
		t.Error(err)
	}
	w.network(model.Network{Name: "hole", Driver: model.DriverBridge, Subnets: shop("203.0.113.0/24").Subnets})

	w.network(lan)
	w.attach(to(w.watchedSandbox())) // its bridge has the subnet
	w.network(lan)
	changed := lan
	changed.MTU = 1400
	w.network(changed)
	w.sh("ip route add 172.30.7.0/24 via 192.0.2.254") // after the network was created
	changed.MTU = 1300
	w.network(changed)
	changed.Subnets = append(changed.Subnets[:1:1], model.Subnet{Prefix: prefix("fd00:2::/64")})
	if _, err := w.CreateNetwork(changed, false); api.CodeOf(err) != api.Conflict {
		t.Errorf("a change adds a subnet of eth0: %v", err)
	}

	allowed := shop("192.0.2.128/25")
	allowed.AllowOverlap = true
	w.network(allowed)
	if _, err := w.RemoveNetwork("shop"); err != nil {
		t.Error(err)
	}
	w.apply(api.Spec{Networks: []model.Network{allowed}})
	if r := w.apply(api.Spec{Networks: []model.Network{allowed}}); r.Changed {
		t.Errorf("applied again: %+v", r.Changes)
	}
}
