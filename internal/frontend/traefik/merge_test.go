package traefik

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fairlead/internal/model/gateway"
)

// TestMerge checks how containers without a project that define the same names are joined, in any order.
func TestMerge(t *testing.T) {
	labels := ".http.routers.web.rule=r\n.http.services.web.loadbalancer.server.port=80\n"
	old := whoami(labels+".http.middlewares.m.addprefix.prefix=/old", named("old", "10.0.0.1", 9))
	same := whoami(labels+".http.middlewares.m.addprefix.prefix=/old", named("same", "10.0.0.2", 5))
	starting := whoami(labels, named("starting", "10.0.0.3", 2), func(c *Container) { c.Health = "starting" })
	sticky := whoami(labels+".http.services.web.loadbalancer.sticky=true\n.http.middlewares.m.addprefix.prefix=/new",
		named("sticky", "10.0.0.4", 1))
	servers := []gateway.Server{{URL: "http://10.0.0.1:80"}, {URL: "http://10.0.0.2:80"}, {URL: "http://10.0.0.4:80"}}
	want := gateway.HTTP{
		Routers: map[string]*gateway.Router{
			"web.container:old@docker":    {Rule: "r", Service: "web.container:old@docker"},
			"web.container:sticky@docker": {Rule: "r", Service: "web.container:sticky@docker"}},
		Services: map[string]*gateway.Service{
			"web.container:old@docker": {LoadBalancer: &gateway.LoadBalancer{Servers: servers}},
			"web.container:sticky@docker": {LoadBalancer: &gateway.LoadBalancer{Servers: servers,
				Sticky: &gateway.Sticky{}}}},
		Middlewares: map[string]*gateway.Middleware{
			"m.container:old@docker":    {AddPrefix: &gateway.AddPrefix{Prefix: "/old"}},
			"m.container:sticky@docker": {AddPrefix: &gateway.AddPrefix{Prefix: "/new"}}},
	}
	wantProblems := []string{
		"container old: middleware m.container:old@docker: container sticky defines middleware m differently: ",
		"container sticky: middleware m.container:sticky@docker: container old, container same defines middleware m ",
		"container old: middleware m@docker: the name is ambiguous, because container old, container same, container " +
			"sticky define it differently: refer to one of m.container:old@docker, m.container:sticky@docker, or",
		"container old: router web.container:old@docker: container sticky defines router web differently: each exists, ",
		"container sticky: router web.container:sticky@docker: container old, container same defines router web ",
		"container old: service web.container:old@docker: container sticky defines service web differently: ",
		"container sticky: service web.container:sticky@docker: container old, container same, container starting defines ",
		"container old: service web@docker: the name is ambiguous, because",
		"container old: router web.container:old@docker: router web.container:sticky@docker of container sticky has the " +
			"same rule and priority: this one gets the requests, because its name is first",
		"container sticky: router web.container:sticky@docker: router web.container:old@docker of container old has the " +
			"same rule and priority: that one gets the requests",
	}
	for _, list := range [][]Container{{old, same, starting, sticky}, {sticky, starting, same, old}} {
		config, problems := containersConfig(list, DockerOptions{})
		if diff := cmp.Diff(want, config.HTTP, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
		wantBeginnings(t, problems, wantProblems)
	}
}

// wantBeginnings checks that the problems begin with texts.
func wantBeginnings(t *testing.T, problems []Problem, want []string) {
	t.Helper()
	got := problemTexts(problems)
	for i, text := range got {
		if i >= len(want) || !strings.HasPrefix(text, want[i]) {
			t.Errorf("problem %d: %s", i, text)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d problems, want %d", len(got), len(want))
	}
}

// TestMergeStreams checks that servers of TCP and UDP services join too.
func TestMergeStreams(t *testing.T) {
	labels := ".tcp.routers.db.rule=HostSNI(TICK*TICK)\n.tcp.services.db.loadbalancer.server.port=5432\n" +
		".udp.routers.dns.entrypoints=dns\n.udp.services.dns.loadbalancer.server.port=53"
	config, problems := containersConfig([]Container{whoami(labels, named("a", "10.0.0.1", 3)),
		whoami(labels, named("b", "10.0.0.2", 2)), whoami(labels, named("c", "10.0.0.2", 1))}, DockerOptions{})
	if len(problems) > 0 {
		t.Errorf("problems: %q", problemTexts(problems))
	}
	tcp := []gateway.TCPServer{{Address: "10.0.0.1:5432"}, {Address: "10.0.0.2:5432"}}
	if diff := cmp.Diff(tcp, config.TCP.Services["db@docker"].LoadBalancer.Servers); diff != "" {
		t.Error(diff)
	}
	udp := []gateway.UDPServer{{Address: "10.0.0.1:53"}, {Address: "10.0.0.2:53"}}
	if diff := cmp.Diff(udp, config.UDP.Services["dns@docker"].LoadBalancer.Servers); diff != "" {
		t.Error(diff)
	}
}

// TestConfigAgain checks that a change of one container leaves the values of the others,
// and the earlier configuration, as they are.
func TestConfigAgain(t *testing.T) {
	labels := ".http.services.web.loadbalancer.server.port=80\n.http.routers.web.rule=r"
	first, second := whoami(labels, named("first", "10.0.0.1", 9)), whoami(labels, named("second", "10.0.0.2", 5))
	other := whoami("", named("other", "10.0.0.3", 7))
	joined := whoami("", named("joined", "10.0.0.4", 6), func(c *Container) {
		c.NetworkMode, c.Networks = "container:other", nil
	})
	d := NewDocker(DockerOptions{})
	servers := func(c gateway.Config, service string) (urls []string) {
		for _, s := range c.HTTP.Services[service+"@docker"].LoadBalancer.Servers {
			urls = append(urls, s.URL)
		}
		return urls
	}
	before, _ := d.Config([]*Container{&first, &other, &joined})
	moved := whoami("", named("other", "10.0.0.5", 7))
	after, _ := d.Config([]*Container{&first, &second, &moved, &joined})
	if before.HTTP.Routers["web@docker"] != after.HTTP.Routers["web@docker"] {
		t.Error("the router of an unchanged container is another value")
	}
	for _, tt := range []struct {
		config  gateway.Config
		service string
		want    []string
	}{
		{before, "web", []string{"http://10.0.0.1:80"}},
		{after, "web", []string{"http://10.0.0.1:80", "http://10.0.0.2:80"}},
		{before, "joined", []string{"http://10.0.0.3:80"}},
		{after, "joined", []string{"http://10.0.0.5:80"}},
	} {
		if diff := cmp.Diff(tt.want, servers(tt.config, tt.service)); diff != "" {
			t.Errorf("service %s: %s", tt.service, diff)
		}
	}
}
