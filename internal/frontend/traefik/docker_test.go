package traefik

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fairlead/internal/model/gateway"
)

// whoami returns a running container with labels KEY=VALUE (below "traefik." if they
// begin with a dot; TICK means a backtick) and with changes to its other values.
func whoami(labels string, changes ...func(*Container)) Container {
	c := Container{ID: "1", Name: "whoami", Running: true, Labels: map[string]string{},
		ExposedPorts: []Port{{443, "tcp"}, {53, "udp"}, {80, "tcp"}},
		Networks: map[string][]netip.Addr{"web": {netip.MustParseAddr("2001:db8::2"),
			netip.MustParseAddr("10.0.0.2")}}}
	for line := range strings.Lines(labels) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if strings.HasPrefix(key, ".") {
			key = "traefik" + key
		}
		c.Labels[key] = strings.ReplaceAll(value, "TICK", "`")
	}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func named(name, address string, age int) func(*Container) {
	return func(c *Container) {
		c.ID, c.Name, c.Created = "id-"+name, name, time.Unix(1000-int64(age), 0)
		c.Networks = map[string][]netip.Addr{"web": {netip.MustParseAddr(address)}}
	}
}

func problemTexts(problems []Problem) (found []string) {
	for _, p := range problems {
		found = append(found, p.String())
	}
	return found
}

func http(address string) *gateway.Service {
	return &gateway.Service{LoadBalancer: &gateway.LoadBalancer{Servers: []gateway.Server{{URL: address}}}}
}

func empty() *gateway.Service { return &gateway.Service{LoadBalancer: &gateway.LoadBalancer{}} }

// badRouter is a router, and another one with a faulty priority.
const badRouter = ".http.routers.a.rule=r\n.http.routers.b.priority=high"

// TestContainer checks the HTTP part of the configuration of one container.
func TestContainer(t *testing.T) {
	type routers = map[string]*gateway.Router
	type services = map[string]*gateway.Service
	defaultRouter := routers{"whoami@docker": {Rule: "Host(`whoami`)", Service: "whoami@docker"}}
	for name, tt := range map[string]struct {
		container Container
		opt       gateway.Docker
		routers   routers
		services  services
		// problem is the beginning of the only problem.
		problem string
	}{
		"no labels": {container: whoami(""), routers: defaultRouter,
			services: services{"whoami@docker": http("http://10.0.0.2:80")}},
		"a label for constraints": {container: whoami(".constraint-label=public\n.tags=a"), routers: defaultRouter,
			services: services{"whoami@docker": http("http://10.0.0.2:80")}},
		"not exposed by default": {container: whoami(""), opt: gateway.Docker{ExposedByDefault: new(bool)}},
		"forgotten enable": {container: whoami(".http.routers.a.rule=r"),
			opt:     gateway.Docker{ExposedByDefault: new(bool)},
			problem: "container whoami: the labels are not in effect: containers are not exposed by default"},
		"enabled": {container: whoami(".enable=true"), opt: gateway.Docker{ExposedByDefault: new(bool)},
			routers: defaultRouter, services: services{"whoami@docker": http("http://10.0.0.2:80")}},
		"disabled, with a mistake": {container: whoami(".enable=false\n.http.routers.a.rul=r")},
		"faulty enable": {container: whoami(".enable=yes"),
			problem: `container whoami: traefik.enable: value "yes": want true or false`},
		"names of Compose": {container: whoami("com.docker.compose.project=my_app\ncom.docker.compose.service=web"),
			routers:  routers{"web-my-app@docker": {Rule: "Host(`web-my-app`)", Service: "web-my-app@docker"}},
			services: services{"web-my-app@docker": http("http://10.0.0.2:80")}},
		"the name of a Swarm service": {container: whoami("", func(c *Container) { c.Service = "shop_web" }),
			routers:  routers{"shop-web@docker": {Rule: "Host(`shop-web`)", Service: "shop-web@docker"}},
			services: services{"shop-web@docker": http("http://10.0.0.2:80")}},
		"default rule": {container: whoami("zone=Example.ORG"), opt: gateway.Docker{
			DefaultRule: "Host(`{{ .ContainerName | upper }}.{{ index .Labels \"zone\" | lower }}`)"},
			routers: routers{"whoami@docker": {Rule: "Host(`WHOAMI.example.org`)",
				Service: "whoami@docker"}}, services: services{"whoami@docker": http("http://10.0.0.2:80")}},
		"default rule without a text": {container: whoami(""),
			opt:      gateway.Docker{DefaultRule: "{{ .Name | trimAll .Name }}"},
			services: services{"whoami@docker": http("http://10.0.0.2:80")},
			problem:  "container whoami: router whoami@docker: it has no rule, and the default rule is empty"},
		"a router takes the only service": {container: whoami(`.http.routers.a.rule=r
			.http.services.Back.loadbalancer.server.port=8080`),
			routers:  routers{"a@docker": {Rule: "r", Service: "Back@docker"}},
			services: services{"Back@docker": http("http://10.0.0.2:8080")}},
		"a faulty router is disabled alone": {container: whoami(badRouter),
			routers:  routers{"a@docker": {Rule: "r", Service: "whoami@docker"}},
			services: services{"whoami@docker": http("http://10.0.0.2:80")},
			problem:  `container whoami: router b@docker: traefik.http.routers.b.priority: value "high": want an integer`},
		"strict": {container: whoami(badRouter),
			opt:     gateway.Docker{Strict: true},
			problem: `container whoami: router b@docker: traefik.http.routers.b.priority: value "high": want an integer`},
		"a faulty service has no default instead": {container: whoami(".http.services.a.loadbalancer.server.prot=1"),
			problem: `container whoami: service a@docker: traefik.http.services.a.loadbalancer.server.prot: the key "prot" ` +
				`is not known: the nearest one is "port"`},
		"several services and no router": {container: whoami(`.http.services.a.loadbalancer.server.port=1
			.http.services.b.loadbalancer.server.port=2`),
			services: services{"a@docker": http("http://10.0.0.2:1"), "b@docker": http("http://10.0.0.2:2")},
			problem:  "container whoami: the container has no router: it has several services, a, b"},
		"several services and one router": {container: whoami(`.http.services.api.loadbalancer.server.port=1
			.http.services.apii.loadbalancer.sticky=true
			.http.routers.a.rule=r`),
			services: services{"api@docker": http("http://10.0.0.2:1"), "apii@docker": {
				LoadBalancer: &gateway.LoadBalancer{Servers: []gateway.Server{{URL: "http://10.0.0.2:80"}},
					Sticky: &gateway.Sticky{}}}},
			problem: "container whoami: router a@docker: it names no service, and the container has several, api, apii: add " +
				`the router's label "service"; if "api" and "apii" are the same service, write one name in all labels`},
		"a service of another provider": {container: whoami(`.http.routers.api.rule=r
			.http.routers.api.service=api@internal
			.http.routers.api.middlewares=auth, x@file,y@swarm
			.http.routers.api.tls.options=strong`, func(c *Container) { c.ExposedPorts = nil }),
			routers: routers{"api@docker": {Rule: "r", Service: "api@internal",
				Middlewares: []string{"auth@docker", "x@file", "y@docker"},
				TLS:         &gateway.RouterTLS{Options: "strong@docker"}}}},
		"a default service for routers elsewhere": {container: whoami(`.http.routers.a.rule=r
			.http.routers.a.service=b@file`), routers: routers{"a@docker": {Rule: "r", Service: "b@file"}},
			services: services{"whoami@docker": http("http://10.0.0.2:80")}},
		"default TLS options": {container: whoami(".http.routers.a.rule=r\n.http.routers.a.tls.options=default"),
			routers: routers{"a@docker": {Rule: "r", Service: "whoami@docker",
				TLS: &gateway.RouterTLS{Options: "default"}}},
			services: services{"whoami@docker": http("http://10.0.0.2:80")}},
		"no port": {container: whoami("", func(c *Container) { c.ExposedPorts = nil }),
			problem: "container whoami: service whoami@docker: the container exposes no port"},
		"a URL": {container: whoami(".http.services.a.loadbalancer.server.url=https://x:1\n.http.routers.a.rule=r"),
			routers:  routers{"a@docker": {Rule: "r", Service: "a@docker"}},
			services: services{"a@docker": http("https://x:1")}},
		"a URL and a port": {container: whoami(`.http.services.a.loadbalancer.server.url=https://x:1
			.http.services.a.loadbalancer.server.port=2
			.http.routers.a.rule=r`), routers: routers{"a@docker": {Rule: "r", Service: "a@docker"}},
			problem: "container whoami: service a@docker: the server has a URL and also a port or a scheme"},
		"scheme and weight": {container: whoami(`.http.services.a.loadbalancer.server.scheme=h2c
			.http.services.a.loadbalancer.server.weight=3
			.http.routers.a.rule=r`), routers: routers{"a@docker": {Rule: "r", Service: "a@docker"}},
			services: services{"a@docker": {LoadBalancer: &gateway.LoadBalancer{Servers: []gateway.Server{
				{URL: "h2c://10.0.0.2:80", Weight: new(3)}}}}}},
		"a wrong scheme": {container: whoami(".http.services.a.loadbalancer.server.scheme=tcp"),
			problem: `container whoami: service a@docker: scheme "tcp": want http, https or h2c`},
		"a wrong port": {container: whoami(".http.services.a.loadbalancer.server.port=80/tcp"),
			problem: `container whoami: service a@docker: port "80/tcp": want a number from 1 to 65535`},
		"a wrong URL": {container: whoami(".http.services.a.loadbalancer.server.url=10.0.0.1"),
			problem: `container whoami: service a@docker: URL "10.0.0.1" of the server: want SCHEME://HOST:PORT`},
		"several servers": {container: whoami(".http.services.a.loadbalancer.servers[0].port=80\n" +
			".http.services.a.loadbalancer.servers[1].port=81"),
			problem: "container whoami: service a@docker: labels describe one server per container"},
		"not running": {container: whoami("", func(c *Container) { c.Running = false })},
		"not running, but allowed": {container: whoami(".docker.allownonrunning=true", func(c *Container) {
			c.Running, c.Networks = false, nil
		}), routers: defaultRouter, services: services{"whoami@docker": empty()}},
		"no service of a swarm is not running": {container: whoami(".docker.allownonrunning=true", func(c *Container) {
			c.Service = "whoami"
		}), routers: defaultRouter, services: services{"whoami@docker": http("http://10.0.0.2:80")},
			problem: "container whoami: label traefik.docker.allowNonRunning has no effect on a service of a swarm: set " +
				"providers.swarm.allowEmptyServices"},
		"starting": {container: whoami("", func(c *Container) { c.Health = "starting" }), routers: defaultRouter,
			services: services{"whoami@docker": empty()}},
		"stopping": {container: whoami("", func(c *Container) { c.Stopping = true }), routers: defaultRouter,
			services: services{"whoami@docker": empty()}},
		"the labels of a stack with a typo": {container: whoami(`.enable=true
			.http.routers.my-router.rule=Host(TICKexample.comTICK)
			.http.routers.my-router.entrypoints=websecure
			.http.routers.my-routerhttp.entrypoints=web
			.http.routers.my-httprouter.rule=Host(TICKexample.comTICK)
			.http.routers.my-httprouter.middlewares=my-redirectscheme
			.http.routers.my-router.tls=true
			.http.routers.my-router.tls.certresolver=myresolver
			.http.services.my-service.loadbalancer.server.port=80
			.http.middlewares.my-redirectscheme.redirectscheme.scheme=https`),
			routers: routers{
				"my-router@docker": {Rule: "Host(`example.com`)", Service: "my-service@docker",
					EntryPoints: []string{"websecure"}, TLS: &gateway.RouterTLS{CertResolver: "myresolver"}},
				"my-httprouter@docker": {Rule: "Host(`example.com`)", Service: "my-service@docker",
					Middlewares: []string{"my-redirectscheme@docker"}},
				"my-routerhttp@docker": {Rule: "Host(`whoami`)", Service: "my-service@docker",
					EntryPoints: []string{"web"}}},
			services: services{"my-service@docker": http("http://10.0.0.2:80")},
			problem: "container whoami: router my-routerhttp@docker: the router exists only because of the label " +
				`traefik.http.routers.my-routerhttp.entrypoints, and "my-httprouter" has nearly the same name`},
		"similar names that are meant": {container: whoami(`.http.routers.web1.rule=r
			.http.routers.web2.entrypoints=web`),
			routers: routers{"web1@docker": {Rule: "r", Service: "whoami@docker"},
				"web2@docker": {Rule: "Host(`whoami`)", Service: "whoami@docker", EntryPoints: []string{"web"}}},
			services: services{"whoami@docker": http("http://10.0.0.2:80")}},
		"a middleware of two kinds": {container: whoami(`.http.middlewares.m.compress=true
			.http.middlewares.m.addprefix.prefix=/x`), routers: defaultRouter,
			services: services{"whoami@docker": http("http://10.0.0.2:80")},
			problem: "container whoami: middleware m@docker: traefik.http.middlewares.m: it has several kinds, addprefix and " +
				"compress: give each its own name"},
		"a label in two cases": {container: whoami(".http.routers.A.rule=r\n.http.routers.a.rule=s"),
			routers:  routers{"A@docker": {Rule: "s", Service: "whoami@docker"}},
			services: services{"whoami@docker": http("http://10.0.0.2:80")},
			problem:  "container whoami: label traefik.http.routers.A.rule is given 2 times, in different cases"},
		"refused by constraints": {container: whoami(""), opt: gateway.Docker{Constraints: "Label(`zone`, `a`)"}},
		"faulty constraints": {container: whoami(""), opt: gateway.Docker{Constraints: "Tag(`a`)"},
			problem: "providers.docker.constraints: parse constraints"},
		"faulty default rule": {container: whoami(""), opt: gateway.Docker{DefaultRule: "{{ sha1 }}"},
			services: services{"whoami@docker": http("http://10.0.0.2:80")},
			problem:  "providers.docker.defaultRule: parse the template: "},
	} {
		t.Run(name, func(t *testing.T) {
			config, problems := containersConfig([]Container{tt.container}, DockerOptions{Docker: tt.opt})
			if diff := cmp.Diff(tt.routers, config.HTTP.Routers, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("routers: %s", diff)
			}
			if diff := cmp.Diff(tt.services, config.HTTP.Services, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("services: %s", diff)
			}
			switch found := problemTexts(problems); {
			case tt.problem == "" && len(found) > 0:
				t.Errorf("problems: %q", found)
			case tt.problem != "" && (len(found) == 0 || !strings.HasPrefix(found[0], tt.problem)):
				t.Errorf("problems: %q, want %q", found, tt.problem)
			}
		})
	}
}

// TestStreams checks the TCP and UDP part of the configuration of one container.
func TestStreams(t *testing.T) {
	config, problems := containersConfig([]Container{whoami(`.tcp.routers.db.rule=HostSNI("*")
		.tcp.routers.db.entrypoints=db
		.tcp.routers.db.tls.passthrough=true
		.tcp.services.db.loadbalancer.server.port=5432
		.tcp.services.db.loadbalancer.server.tls=true
		.tcp.routers.norule.service=db
		.udp.routers.dns.entrypoints=dns`)}, DockerOptions{})
	want := gateway.Config{
		TCP: gateway.TCP{
			Routers: map[string]*gateway.TCPRouter{"db@docker": {Rule: `HostSNI("*")`, EntryPoints: []string{"db"},
				Service: "db@docker", TLS: &gateway.TCPRouterTLS{Passthrough: true}}},
			Services: map[string]*gateway.TCPService{"db@docker": {LoadBalancer: &gateway.TCPLoadBalancer{
				Servers: []gateway.TCPServer{{Address: "10.0.0.2:5432", TLS: true}}}}},
		},
		UDP: gateway.UDP{
			Routers: map[string]*gateway.UDPRouter{"dns@docker": {EntryPoints: []string{"dns"},
				Service: "whoami@docker"}},
			Services: map[string]*gateway.UDPService{"whoami@docker": {LoadBalancer: &gateway.UDPLoadBalancer{
				Servers: []gateway.UDPServer{{Address: "10.0.0.2:53"}}}}},
		},
	}
	if diff := cmp.Diff(want, config, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	wantProblems := []string{"container whoami: TCP router norule@docker: it has no rule: add the label " +
		"traefik.tcp.routers.norule.rule=HostSNI(`NAME`)"}
	if diff := cmp.Diff(wantProblems, problemTexts(problems)); diff != "" {
		t.Error(diff)
	}
}

// TestAddresses checks from which network the address of a server is.
func TestAddresses(t *testing.T) {
	two := func(c *Container) {
		c.Networks = map[string][]netip.Addr{"app_back": {netip.MustParseAddr("10.1.0.2")},
			"app_front": {netip.MustParseAddr("10.2.0.2")}}
		c.Labels[composeProject] = "app"
	}
	mode := func(mode string) func(*Container) {
		return func(c *Container) { c.NetworkMode, c.Networks = mode, nil }
	}
	other := whoami(".enable=false", named("vpn", "10.3.0.9", 0))
	for name, tt := range map[string]struct {
		container Container
		opt       DockerOptions
		want      string
		problem   string
	}{
		"the label":          {container: whoami(".docker.network=app_front", two), want: "10.2.0.2"},
		"the label of Swarm": {container: whoami(".swarm.network=app_front", two), want: "10.2.0.2"},
		"the provider's network": {container: whoami("", two),
			opt: DockerOptions{Docker: gateway.Docker{Network: "app_front"}}, want: "10.2.0.2"},
		"without the project's prefix": {container: whoami(".docker.network=front", two), want: "10.2.0.2",
			problem: `there is no network "front" at the container: app_front is in use`},
		"the only shared network": {container: whoami("", two),
			opt:  DockerOptions{GatewayNetworks: []string{"app_front"}},
			want: "10.2.0.2"},
		"several": {container: whoami("", two), want: "10.1.0.2",
			problem: "the gateway reaches the container via several networks, app_back, app_front: app_back is in use; " +
				"choose one with the label traefik.docker.network"},
		"a network that the container lacks": {container: whoami(".docker.network=other", two), want: "10.1.0.2",
			problem: `there is no network "other" at the container, which has app_back, app_front: app_back is in use`},
		"no shared network": {container: whoami("", two), opt: DockerOptions{GatewayNetworks: []string{"edge"}},
			problem: "it has no server of this container: the gateway shares no network with the container: the container " +
				"has app_back, app_front, the gateway has edge; connect one of them to the other's network"},
		"host": {container: whoami("", mode("host")), want: "127.0.0.1"},
		"host with an address": {container: whoami("", mode("host")),
			opt: DockerOptions{HostAddress: netip.MustParseAddr("172.17.0.1")}, want: "172.17.0.1"},
		"host of a Swarm node": {container: whoami("", mode("host"), func(c *Container) {
			c.NodeIP = netip.MustParseAddr("192.0.2.9")
		}), want: "192.0.2.9"},
		"the network of another container": {container: whoami("", mode("container:id-vpn")), want: "10.3.0.9"},
		"the network of a missing container": {container: whoami("", mode("container:gone")),
			problem: "it has no server of this container: the container shares the network of container gone, which does " +
				"not run"},
		"its own network": {container: whoami("", mode("container:1")),
			problem: "it has no server of this container: the container shares the network of container 1, which does " +
				"not run"},
		"only IPv6": {container: whoami("", func(c *Container) {
			c.Networks = map[string][]netip.Addr{"web": {netip.MustParseAddr("2001:db8::2")}}
		}), want: "[2001:db8::2]"},
		"no address yet": {container: whoami("", func(c *Container) { c.Networks["web"] = nil }),
			problem: `it has no server of this container: the container has no address on the network "web"`},
		"no network": {container: whoami("", func(c *Container) { c.Networks = nil }),
			problem: "it has no server of this container: the container has no network: connect it to a network of the gateway"},
		"a published port": {container: whoami("", func(c *Container) {
			c.Published = []Published{{Port{80, "tcp"}, netip.MustParseAddrPort("192.0.2.1:8080")}}
		}), opt: DockerOptions{Docker: gateway.Docker{UseBindPortIP: true}}, want: "192.0.2.1:8080"},
		"the virtual address of a Swarm service": {container: whoami(".docker.lbswarm=true", func(c *Container) {
			c.VirtualIPs = map[string][]netip.Addr{"web": {netip.MustParseAddr("10.9.0.1")}}
		}), want: "10.9.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			config, problems := containersConfig([]Container{tt.container, other}, tt.opt)
			var got string
			for _, s := range config.HTTP.Services {
				for _, server := range s.LoadBalancer.Servers {
					got = strings.TrimSuffix(strings.TrimPrefix(server.URL, "http://"), ":80")
				}
			}
			if got != tt.want || len(config.HTTP.Services) != 1 {
				t.Errorf("address %q of %d services, want %q", got, len(config.HTTP.Services), tt.want)
			}
			var text string
			for _, p := range problems {
				text += p.Text
			}
			if text != tt.problem {
				t.Errorf("problem %q, want %q", text, tt.problem)
			}
		})
	}
}

// containersConfig returns the configuration of containers that no call before has seen.
func containersConfig(list []Container, opt DockerOptions) (gateway.Config, []Problem) {
	var pointers []*Container
	for i := range list {
		pointers = append(pointers, &list[i])
	}
	return NewDocker(opt).Config(pointers)
}

// TestNamelessDefaultCertificate checks that a label or a file cannot ask for a default certificate without a name.
func TestNamelessDefaultCertificate(t *testing.T) {
	for _, main := range []string{"", ".", " . "} {
		c := whoami(".tls.stores.default.defaultgeneratedcert.domain.main=" + main)
		c.Labels["traefik.tls.stores.default.defaultgeneratedcert.resolver"] = "le"
		config, problems := containersConfig([]Container{c}, DockerOptions{})
		want := "container whoami: tls store default@docker: traefik.tls.stores.default: defaultGeneratedCert.domain has " +
			"no name: set main, such as example.com"
		if texts := problemTexts(problems); len(config.TLS.Stores) > 0 || !slices.Contains(texts, want) {
			t.Errorf("label %q: stores %v, problems %q", main, config.TLS.Stores, texts)
		}
		if len(config.HTTP.Routers) != 1 {
			t.Errorf("label %q: the container has the routers %v, want its default one", main, config.HTTP.Routers)
		}
		dir := writeFiles(t,
			map[string]string{"a.yml": "tls: {stores: {default: {defaultGeneratedCert: {resolver: le, " +
				"domain: {main: '" + main + "', sans: ['', ' .']}}}}}"})
		if config, problems := Files([]string{dir}); len(config.TLS.Stores) > 0 || len(problems) != 1 {
			t.Errorf("file %q: stores %v, problems %q", main, config.TLS.Stores, problemTexts(problems))
		}
	}
}
