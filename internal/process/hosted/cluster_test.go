package hosted_test

import (
	"strings"
	"testing"

	values "fairlead/internal/model/gateway"
	"fairlead/internal/process/hosted"
)

// TestCheckCluster checks objects of a cluster: what hosts differ in is no problem.
func TestCheckCluster(t *testing.T) {
	c := values.Config{}
	c.HTTP.Routers = map[string]*values.Router{
		"good": {EntryPoints: []string{"web", "other"}, Rule: "Host(`a`)", Service: "selects",
			Middlewares: []string{"auth@file", "limit@docker"}, TLS: &values.RouterTLS{CertResolver: "le"}},
		"rule":    {Rule: "Hosst(`a`)", Service: "selects"},
		"service": {Rule: "Host(`a`)", Service: "missing"},
	}
	c.HTTP.Services = map[string]*values.Service{"selects": {LoadBalancer: &values.LoadBalancer{
		Servers: []values.Server{{Network: "shop", Port: "80"}}}}}
	c.TCP.Routers = map[string]*values.TCPRouter{"db": {EntryPoints: []string{"db"}, Rule: "HostSNI(`*`)",
		Service: "db"}}
	c.TCP.Services = map[string]*values.TCPService{"db": {LoadBalancer: &values.TCPLoadBalancer{
		Servers: []values.TCPServer{{Network: "shop", Port: "5432"}}}}}
	c.UDP.Routers = map[string]*values.UDPRouter{"dns": {EntryPoints: []string{"dns"}, Service: "dns"}}
	c.UDP.Services = map[string]*values.UDPService{"dns": {LoadBalancer: &values.UDPLoadBalancer{
		Servers: []values.UDPServer{{Network: "shop", Port: "53"}}}}}
	found := map[string]string{}
	for _, p := range hosted.CheckCluster(c) {
		found[p.Kind+" "+p.Name] = p.Text
	}
	if len(found) != 2 || !strings.Contains(found["router rule"], "Hosst") ||
		!strings.Contains(found["router service"], "missing") || strings.Contains(found["router service"], "@cluster") {
		t.Errorf("problems: %q", found)
	}
}
