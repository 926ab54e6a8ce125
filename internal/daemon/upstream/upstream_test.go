package upstream_test

import (
	"net/netip"
	"reflect"
	"testing"

	"fairlead/internal/daemon/pool"
	"fairlead/internal/daemon/upstream"
	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
)

// web is a pool with real servers in all states.
func web() *pool.Pool {
	at := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, last}) }
	reals := []model.RealServer{
		{Address: at(1), Weight: 3},
		{Address: at(2), Port: 81, Weight: 1, State: model.RealDraining},
		{Address: at(3), Weight: 1, State: model.RealDown},
	}
	return &pool.Pool{Spec: model.VirtualService{Ports: []model.PortRange{model.Port(80)}},
		Full: model.VirtualService{Reals: reals}}
}

// found are containers with addresses of one family or both.
func found(by model.Select, v4 bool) []pool.Found {
	if by.Label != "app=blog" {
		return nil
	}
	if !v4 {
		return []pool.Found{{Endpoint: "both", Sandbox: "both", At: netip.MustParseAddr("fd00::1")},
			{Endpoint: "six", Sandbox: "six", At: netip.MustParseAddr("fd00::2"), Health: "starting"}}
	}
	return []pool.Found{{Endpoint: "both", Sandbox: "both", At: netip.MustParseAddr("10.0.1.1"), Health: "healthy"},
		{Endpoint: "leaves", Sandbox: "leaves", At: netip.MustParseAddr("10.0.1.2"), Leaves: "it is being stopped"}}
}

func declared(servers ...gateway.Server) *model.Gateway {
	return &model.Gateway{Config: gateway.Config{HTTP: gateway.HTTP{Services: map[string]*gateway.Service{
		"s": {LoadBalancer: &gateway.LoadBalancer{Servers: servers}}, "other": {Weighted: &gateway.Weighted{}}}}}}
}

// TestResolve checks which servers an entry stands for, and that the declared gateway stays.
func TestResolve(t *testing.T) {
	weight := func(w int) *int { return &w }
	in := upstream.Inputs{Pools: map[string]*pool.Pool{"web": web()}, Selects: found}
	for name, c := range map[string]struct {
		entry gateway.Server
		want  []gateway.Server
	}{
		"a virtual service": {gateway.Server{Service: "web", Scheme: "https"}, []gateway.Server{
			{URL: "https://10.0.0.1:80", Weight: weight(3)},
			{URL: "https://10.0.0.2:81", Weight: weight(1), Fenced: true},
			{URL: "https://10.0.0.3:80", Weight: weight(1), Down: "it is down"}}},
		"a service that is not in use": {gateway.Server{Service: "gone"}, []gateway.Server{{Service: "gone"}}},
		"containers": {gateway.Server{Label: "app=blog", Port: "8080", Weight: weight(5)}, []gateway.Server{
			{URL: "http://10.0.1.1:8080", Weight: weight(5)},
			{URL: "http://10.0.1.2:8080", Weight: weight(5), Fenced: true},
			{URL: "http://[fd00::2]:8080", Weight: weight(5), Down: "the container is starting"}}},
		"no container": {gateway.Server{Name: "x", Port: "1"}, nil},
		"a URL":        {gateway.Server{URL: "http://a"}, []gateway.Server{{URL: "http://a"}}},
	} {
		g := declared(c.entry)
		got := upstream.Resolve(g, in).Config.HTTP.Services["s"].LoadBalancer.Servers
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if !g.Equal(declared(c.entry)) {
			t.Errorf("%s: the declared gateway has changed", name)
		}
	}
	if upstream.Resolve(nil, in) != nil || upstream.HasSelector(nil) {
		t.Error("no gateway is resolved to one")
	}
	if !upstream.HasSelector(declared(gateway.Server{Label: "a"})) ||
		upstream.HasSelector(declared(gateway.Server{URL: "a"})) {
		t.Error("HasSelector")
	}
}

// TestSandboxOnTwoNetworks checks that a sandbox with an IPv4 address on one network and an IPv6 address on
// another one is one server.
func TestSandboxOnTwoNetworks(t *testing.T) {
	twice := func(_ model.Select, v4 bool) []pool.Found {
		if v4 {
			return []pool.Found{{Endpoint: "web-front", Sandbox: "docker:web", At: netip.MustParseAddr("10.0.1.1")}}
		}
		return []pool.Found{{Endpoint: "web-back", Sandbox: "docker:web", At: netip.MustParseAddr("fd00::1")}}
	}
	got := upstream.Selected([]model.Select{{Label: "app=web"}, {Name: "web"}}, twice)
	if len(got) != 2 || got[0].Endpoint != "web-front" || got[1].Endpoint != "web-front" {
		t.Errorf("selected: %+v, want the endpoint web-front once for each selector", got)
	}
}

// TestStreams checks which servers an entry of TCP and UDP stands for: those that get new clients.
func TestStreams(t *testing.T) {
	c := &model.ClusterGateway{}
	c.Config.TCP.Services = map[string]*gateway.TCPService{"s": {LoadBalancer: &gateway.TCPLoadBalancer{
		Servers: []gateway.TCPServer{{Address: "a:1"}, {Label: "app=blog", Port: "25", TLS: true}}}},
		"other": {Weighted: &gateway.TCPWeighted{}}}
	c.Config.UDP.Services = map[string]*gateway.UDPService{"s": {LoadBalancer: &gateway.UDPLoadBalancer{
		Servers: []gateway.UDPServer{{Address: "a:1"}, {Label: "app=blog", Port: "53"}}}}}
	got := upstream.ResolveCluster(c, found).Config
	tcp := []gateway.TCPServer{{Address: "a:1"}, {Address: "10.0.1.1:25", TLS: true}}
	if servers := got.TCP.Services["s"].LoadBalancer.Servers; !reflect.DeepEqual(servers, tcp) {
		t.Errorf("TCP: %+v, want %+v", servers, tcp)
	}
	udp := []gateway.UDPServer{{Address: "a:1"}, {Address: "10.0.1.1:53"}}
	if servers := got.UDP.Services["s"].LoadBalancer.Servers; !reflect.DeepEqual(servers, udp) {
		t.Errorf("UDP: %+v, want %+v", servers, udp)
	}
	if len(c.Config.TCP.Services["s"].LoadBalancer.Servers) != 2 || upstream.ResolveCluster(nil, found) != nil {
		t.Error("the objects of the cluster have changed")
	}
}
