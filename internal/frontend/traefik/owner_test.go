package traefik

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead/internal/model/gateway"
)

// in puts a container into a Compose project.
func in(project string) func(*Container) {
	return func(c *Container) { c.Labels[composeProject], c.Labels[composeService] = project, "web" }
}

// site returns labels of a router for a host, with a service of the same name.
func site(name, host string) string {
	return ".http.routers." + name + ".rule=Host(TICK" + host + "TICK)\n.http.services." + name +
		".loadbalancer.server.port=80\n"
}

// auth returns labels of a router with the middleware auth, which adds a prefix.
func auth(name, prefix string) string {
	return site(name, name+".test") + ".http.routers." + name + ".middlewares=auth\n" + middlewareAuth(prefix)
}

// uses returns labels of the router a with the middleware auth, which they do not define.
func uses() string { return site("a", "a.test") + ".http.routers.a.middlewares=auth" }

func middlewareAuth(prefix string) string {
	return ".http.middlewares.auth.addprefix.prefix=" + prefix + "\n"
}

func unhealthy(c *Container) { c.Health = "unhealthy" }
func stopping(c *Container)  { c.Stopping = true }

// TestOwners checks the cases of docs/adr/0059-names-have-owners.md. Effects are those of the model: the
// rule, the middlewares, the service with its servers.
func TestOwners(t *testing.T) {
	for name, tt := range map[string]struct {
		list    []Container
		opt     gateway.Docker
		effects []string
		// names are those of the routers.
		names string
		// problem is part of a problem, "" if there must be none.
		problem string
	}{
		"two projects define a middleware": {
			list: []Container{whoami(auth("a", "/a"), named("a", "10.0.0.1", 1), in("a")),
				whoami(auth("b", "/b"), named("b", "10.0.0.2", 9), in("b"))},
			effects: []string{"Host(`a.test`) /a a=[10.0.0.1]", "Host(`b.test`) /b b=[10.0.0.2]"},
			names:   "a@docker b@docker",
			problem: "container a: middleware auth.a@docker: container b of compose project b defines middleware auth " +
				"differently"},
		"two projects define a middleware equally": {
			list: []Container{whoami(auth("a", "/a"), named("a", "10.0.0.1", 1), in("a")),
				whoami(auth("b", "/a"), named("b", "10.0.0.2", 9), in("b"))},
			effects: []string{"Host(`a.test`) /a a=[10.0.0.1]", "Host(`b.test`) /a b=[10.0.0.2]"},
			names:   "a@docker b@docker"},
		"two projects define a router": {
			list: []Container{whoami(site("shop", "a.test"), named("a", "10.0.0.1", 1), in("a")),
				whoami(site("shop", "unused.test"), named("b", "10.0.0.2", 9), in("b"))},
			effects: []string{"Host(`a.test`) shop=[10.0.0.1]", "Host(`unused.test`) shop=[10.0.0.2]"},
			names:   "shop.a@docker shop.b@docker", problem: "defines router shop differently: each exists"},
		"two projects claim a host": {
			list: []Container{whoami(site("z", "a.test"), named("z", "10.0.0.1", 1), in("z")),
				whoami(site("b", "a.test"), named("b", "10.0.0.2", 9), in("b"))},
			effects: []string{"Host(`a.test`) b=[10.0.0.2]", "Host(`a.test`) z=[10.0.0.1]"}, names: "b@docker z@docker",
			problem: "container z: router z@docker: router b@docker of container b of compose project b has the same rule " +
				"and priority: that one gets the requests"},
		"a middleware of the only other owner": {
			list: []Container{whoami(uses(), named("a", "10.0.0.1", 1), in("a")),
				whoami(".http.services.x.loadbalancer.server.port=80\n.http.routers.x.rule=r\n"+middlewareAuth("/b"),
					named("b", "10.0.0.2", 9), in("b"))},
			effects: []string{"Host(`a.test`) /b a=[10.0.0.1]", "r x=[10.0.0.2]"}, names: "a@docker x@docker"},
		"a middleware of two other owners": {
			list: []Container{whoami(uses(), named("a", "10.0.0.1", 1), in("a")),
				whoami(auth("b", "/b"), named("b", "10.0.0.2", 9), in("b")),
				whoami(auth("c", "/c"), named("c", "10.0.0.3", 5))},
			effects: []string{"Host(`a.test`) closed", "Host(`b.test`) /b b=[10.0.0.2]",
				"Host(`c.test`) /c c=[10.0.0.3]"},
			names: "a@docker b@docker c@docker",
			problem: "container a: router a@docker: middleware auth is defined differently by container b of compose project b, " +
				"container c, and not by this container or its project"},
		"a middleware of containers without a project": {
			list: []Container{whoami(uses(), named("a", "10.0.0.1", 1)),
				whoami(auth("b", "/b"), named("b", "10.0.0.2", 9)), whoami(auth("c", "/c"), named("c", "10.0.0.3", 5))},
			effects: []string{"Host(`a.test`) closed", "Host(`b.test`) /b b=[10.0.0.2]",
				"Host(`c.test`) /c c=[10.0.0.3]"},
			names: "a@docker b@docker c@docker",
			problem: "container a: router a@docker: middleware auth is defined differently by container b, container c, and " +
				"not by this container: "},
		"a middleware of the only ready container without a project": {
			list: []Container{whoami(uses(), named("a", "10.0.0.1", 1)),
				whoami(auth("b", "/b"), named("b", "10.0.0.2", 9)),
				whoami(auth("c", "/c"), named("c", "10.0.0.3", 5), stopping)},
			effects: []string{"Host(`a.test`) /b a=[10.0.0.1]", "Host(`b.test`) /b b=[10.0.0.2]",
				"Host(`c.test`) /c c=[]"},
			names: "a@docker b@docker c@docker", problem: "defines middleware auth differently"},
		"a foreign faulty definition": {
			list: []Container{whoami(site("shop", "a.test")+".http.routers.shop.priority=high", named("old",
				"10.0.0.1", 9),
				in("b")), whoami(site("shop", "a.test"), named("new", "10.0.0.2", 1), in("a"))},
			effects: []string{"Host(`a.test`) shop=[10.0.0.2]"}, names: "shop@docker",
			problem: "container old: router shop.b.container:old@docker: traefik.http.routers.shop.priority"},
		"an own faulty definition is not replaced by a foreign one": {
			list: []Container{whoami(site("a", "a.test")+".http.routers.a.middlewares=auth\n"+
				".http.middlewares.auth.addprefix.prefx=/a", named("a", "10.0.0.1", 1), in("a")),
				whoami(auth("b", "/b"), named("b", "10.0.0.2", 9), in("b"))},
			effects: []string{"Host(`a.test`) closed", "Host(`b.test`) /b b=[10.0.0.2]"}, names: "a@docker b@docker",
			problem: "container a: middleware auth.a.container:a@docker: traefik.http.middlewares.auth.addprefix.prefx"},
		"a faulty older deployment": {
			list: []Container{whoami(auth("shop", "/1\n.http.routers.shop.priority=high"), named("old", "10.0.0.1", 9)),
				whoami(auth("shop", "/1"), named("new", "10.0.0.2", 1))},
			effects: []string{"Host(`shop.test`) /1 shop=[10.0.0.1 10.0.0.2]"}, names: "shop@docker",
			problem: "container old: router shop.container:old@docker: traefik.http.routers.shop.priority"},
		"a deployment with other labels, without a project": {
			list: []Container{whoami(auth("shop", "/1"), named("old", "10.0.0.1", 9)),
				whoami(auth("shop", "/2"), named("new", "10.0.0.2", 1))},
			effects: []string{"Host(`shop.test`) /1 shop=[10.0.0.1 10.0.0.2]", "Host(`shop.test`) /2 shop=[10.0.0.1 10.0.0.2]"},
			names:   "shop.container:new@docker shop.container:old@docker", problem: "has the same rule and priority"},
		"the old one gets its stop signal": {
			list: []Container{whoami(auth("shop", "/1"), named("old", "10.0.0.1", 9), stopping),
				whoami(auth("shop", "/2"), named("new", "10.0.0.2", 1))},
			effects: []string{"Host(`shop.test`) /2 shop=[10.0.0.2]"}, names: "shop@docker",
			problem: "container old: middleware auth.container:old@docker"},
		"the new one is not healthy yet": {
			list: []Container{whoami(auth("shop", "/1"), named("old", "10.0.0.1", 9), in("a")),
				whoami(auth("shop", "/2"), named("new", "10.0.0.2", 1), in("a"), unhealthy)},
			effects: []string{"Host(`shop.test`) /1 shop=[10.0.0.1]"}, names: "shop@docker",
			problem: "of the same project"},
		"a deployment changes the rule": {
			list: []Container{whoami(site("shop", "a.test"), named("old", "10.0.0.1", 9), in("a"), stopping),
				whoami(site("shop", "b.test"), named("new", "10.0.0.2", 1), in("a"))},
			effects: []string{"Host(`b.test`) shop=[10.0.0.2]"}, names: "shop@docker"},
		"an unhealthy router of a stranger with another rule stays": {
			list: []Container{whoami(site("shop", "a.test"), named("old", "10.0.0.1", 9), unhealthy),
				whoami(site("shop", "b.test"), named("new", "10.0.0.2", 1))},
			effects: []string{"Host(`a.test`) shop=[10.0.0.2]", "Host(`b.test`) shop=[10.0.0.2]"},
			names:   "shop.container:new@docker shop.container:old@docker", problem: "defines router shop differently"},
		"a foreign server": {
			list: []Container{whoami(site("shop", "a.test"), named("a", "10.0.0.1", 9), in("a")),
				whoami(site("evil", "b.test")+".http.routers.evil.service=shop\n.http.services.shop.loadbalancer.server.port=80",
					named("b", "10.0.0.2", 1))},
			effects: []string{"Host(`a.test`) shop=[10.0.0.1]", "Host(`b.test`) shop=[10.0.0.2]"},
			names:   "evil@docker shop@docker",
			problem: "defines service shop differently"},
		"tasks of a stack": {
			list: []Container{whoami(auth("shop", "/1"), named("shop_web.1", "10.0.0.1", 9), task("shop_web", "shop")),
				whoami(site("api", "api.test")+".http.routers.api.middlewares=auth", named("shop_api.1", "10.0.0.2", 1),
					task("shop_api", "shop")),
				whoami(auth("x", "/2"), named("x.1", "10.0.0.3", 9), task("x", ""))},
			effects: []string{"Host(`api.test`) /1 api=[10.0.0.2]", "Host(`shop.test`) /1 shop=[10.0.0.1]",
				"Host(`x.test`) /2 x=[10.0.0.3]"},
			names: "api@docker shop@docker x@docker", problem: "middleware auth.stack:shop@docker: container x.1 of swarm service x"},
		"a project cannot take the name of a container": {
			list: []Container{whoami(site("shop", "a.test"), named("x", "10.0.0.1", 9)),
				whoami(site("shop", "b.test"), named("b", "10.0.0.2", 1), in("container:x")),
				whoami(site("shop", "c.test"), named("c", "10.0.0.3", 1), in("x@file.y"))},
			effects: []string{"Host(`a.test`) shop=[10.0.0.1]", "Host(`b.test`) shop=[10.0.0.2]",
				"Host(`c.test`) shop=[10.0.0.3]"},
			names: "shop.container%3Ax@docker shop.container:x@docker shop.x%40file%2Ey@docker", problem: "shop differently"},
		"scope: a reference": {opt: gateway.Docker{LabelScope: "project"},
			list: []Container{whoami(uses(), named("a", "10.0.0.1", 1), in("a")),
				whoami(auth("b", "/b"), named("b", "10.0.0.2", 9), in("b"))},
			effects: []string{"Host(`a.test`) closed", "Host(`b.test`) /b b=[10.0.0.2]"}, names: "a@docker b@docker",
			problem: "container a: router a@docker: middleware auth belongs to container b of compose project b, and " +
				"labelScope=project keeps references in their project"},
		"scope: a server": {opt: gateway.Docker{LabelScope: "project"},
			list: []Container{whoami(site("shop", "a.test"), named("a", "10.0.0.1", 9)),
				whoami(site("shop", "b.test"), named("b", "10.0.0.2", 1))},
			effects: []string{"Host(`a.test`) shop=[10.0.0.1]", "Host(`b.test`) shop=[10.0.0.2]"},
			names:   "shop.container:a@docker shop.container:b@docker", problem: "service shop differently"},
		"scope: a URL": {opt: gateway.Docker{LabelScope: "project"},
			list: []Container{whoami(".http.routers.a.rule=r\n.http.services.a.loadbalancer.server.url=http://10.0.0.9:80",
				named("a", "10.0.0.1", 9))},
			effects: []string{"r closed"}, names: "a@docker",
			problem: "container a: service a@docker: labelScope=project keeps servers in their project"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				config, problems := containersConfig(tt.list, DockerOptions{Docker: tt.opt})
				if diff := cmp.Diff(tt.effects, effects(config, problems)); diff != "" {
					t.Error(diff)
				}
				if names := slices.Sorted(maps.Keys(config.HTTP.Routers)); strings.Join(names, " ") != tt.names {
					t.Errorf("routers %q, want %s", names, tt.names)
				}
				texts := strings.Join(problemTexts(problems), "\n")
				if (tt.problem == "") != (texts == "") || !strings.Contains(texts, tt.problem) {
					t.Errorf("problems:\n%s\nwant %q", texts, tt.problem)
				}
				slices.Reverse(tt.list)
			}
		})
	}
}

// task makes a container the task of a Swarm service, in a stack if that is not empty.
func task(service, stack string) func(*Container) {
	return func(c *Container) {
		if c.Service = service; stack != "" {
			c.Labels[stackNamespace] = stack
		}
	}
}

// TestRenamed checks that objects which get other names because another owner comes or goes are reported,
// so that they keep their state.
func TestRenamed(t *testing.T) {
	victim := whoami(auth("shop", "/1"), named("v", "10.0.0.1", 9), in("v"))
	again := whoami(auth("shop", "/1"), named("v", "10.0.0.1", 0), in("v"))
	other := whoami(auth("shop", "/2"), named("o", "10.0.0.2", 5), in("o"))
	d := NewDocker(DockerOptions{})
	renamed := func(kind, from, to string) gateway.Renamed {
		return gateway.Renamed{Kind: kind, From: from + "@docker", To: to + "@docker"}
	}
	for _, tt := range []struct {
		when string
		list []*Container
		want []gateway.Renamed
	}{
		{"the beginning", []*Container{&victim}, nil},
		{"nothing happens", []*Container{&victim}, nil},
		{"another owner comes", []*Container{&victim, &other}, []gateway.Renamed{renamed("middleware",
			"auth", "auth.v"),
			renamed("router", "shop", "shop.v"), renamed("service", "shop", "shop.v")}},
		{"the container is made again", []*Container{&again, &other}, nil},
		{"another owner goes", []*Container{&again}, []gateway.Renamed{renamed("middleware", "auth.v", "auth"),
			renamed("router", "shop.v", "shop"), renamed("service", "shop.v", "shop")}},
		{"one owner replaces another", []*Container{&other}, nil},
	} {
		config, _ := d.Config(tt.list)
		if diff := cmp.Diff(tt.want, config.Renamed); diff != "" {
			t.Errorf("%s: %s", tt.when, diff)
		}
	}
}

// TestOwnersOfStreams checks that TCP and UDP routers and services have owners, too.
func TestOwnersOfStreams(t *testing.T) {
	labels := ".tcp.routers.db.rule=HostSNI(TICK*TICK)\n.tcp.routers.db.middlewares=few\n" +
		".tcp.middlewares.few.inflightconn.amount=AMOUNT\n.tcp.services.db.loadbalancer.server.port=1\n" +
		".udp.routers.dns.entrypoints=dns\n.udp.services.dns.loadbalancer.server.port=2"
	config, _ := containersConfig([]Container{
		whoami(strings.ReplaceAll(labels, "AMOUNT", "1"), named("a", "10.0.0.1", 3), in("a")),
		whoami(strings.ReplaceAll(labels, "AMOUNT", "2"), named("b", "10.0.0.2", 2), in("b"))}, DockerOptions{})
	for owner, address := range map[string]string{"a": "10.0.0.1", "b": "10.0.0.2"} {
		router := config.TCP.Routers["db."+owner+"@docker"]
		if router == nil || router.Middlewares[0] != "few."+owner+"@docker" {
			t.Fatalf("the TCP router of %s: %+v", owner, router)
		}
		tcp, udp := config.TCP.Services[router.Service],
			config.UDP.Services[config.UDP.Routers["dns."+owner+"@docker"].Service]
		if diff := cmp.Diff([]gateway.TCPServer{{Address: address + ":1"}}, tcp.LoadBalancer.Servers); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]gateway.UDPServer{{Address: address + ":2"}}, udp.LoadBalancer.Servers); diff != "" {
			t.Error(diff)
		}
	}
}

// TestTheOnlyStore checks that containers which define the default TLS store differently lose it.
func TestTheOnlyStore(t *testing.T) {
	store := func(name, domain string) Container {
		return whoami(".tls.stores.default.defaultgeneratedcert.resolver=le\n"+
			".tls.stores.default.defaultgeneratedcert.domain.main="+domain, named(name, "10.0.0.1", 1))
	}
	config, problems := containersConfig([]Container{store("a", "a.test"), store("b", "a.test")}, DockerOptions{})
	s := config.TLS.Stores["default"]
	if s == nil || s.DefaultGeneratedCert.Domain.Main != "a.test" || len(problems) > 0 {
		t.Errorf("equal stores: %+v, %q", s, problemTexts(problems))
	}
	config, problems = containersConfig([]Container{store("a", "a.test"), store("b", "b.test"), store("c", "a.test")},
		DockerOptions{})
	if len(config.TLS.Stores) > 0 || len(problems) != 3 || problems[0].Warning ||
		!strings.HasPrefix(problems[0].String(), "container a: tls store default: container b defines it with other settings") {
		t.Errorf("different stores: %+v, %q", config.TLS.Stores, problemTexts(problems))
	}
}
