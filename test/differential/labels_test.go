package differential_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// perEngine is how many containers an engine has.
const perEngine = 50

// labelled returns batches with containers that have generated labels, one set each.
func labelled(seed uint64, sets int) (all []batch) {
	g := &generator{rand.New(rand.NewPCG(seed, 28))}
	for first := 0; first < sets; first += perEngine {
		b := batch{Name: fmt.Sprintf("labels from %d", first),
			Flags: []string{"--providers.docker.exposedbydefault=true"},
			Dynamic: obj{"http": obj{"routers": obj{"sentinel": obj{"rule": "Host(`sentinel.test`)",
				"service": "page"}},
				"services":    obj{"page": balanced(obj{}, "http://127.0.0.1:9004")},
				"middlewares": obj{"shared": obj{"headers": obj{"customResponseHeaders": obj{"X-Shared": "1"}}}}}}}
		for i := first; i < min(first+perEngine, sets); i++ {
			c := g.container(fmt.Sprintf("c%d", i))
			b.Containers = append(b.Containers, c)
			for k, host := range []string{c.Name + ".test", c.Name, c.Name + ".test"} {
				b.Requests = append(b.Requests, g.request(fmt.Sprintf("%s.%d", c.Name, k), host))
				b.Requests[len(b.Requests)-1].Host = host
			}
		}
		b.Containers = append(b.Containers, container{Name: "sentinel", Ports: []string{"80/tcp"},
			Labels: map[string]string{"traefik.http.routers.sentinel.rule": "Host(`docker.test`)"}})
		all = append(all, b)
	}
	return all
}

// routerLabels are labels of a router besides its rule.
var routerLabels = []string{"entrypoints=web", "entrypoints=web,other", "priority=77", "middlewares=shared@file",
	"middlewares=m-NAME", "middlewares=m-NAME@docker, shared@file", "entryPoints=other", "service=NAME",
	"middlewares=none",
	"observability.accesslogs=false", "rulesyntax=v3"}

// serviceLabels are labels of a service.
var serviceLabels = []string{"loadbalancer.server.port=80", "loadbalancer.server.scheme=http",
	"loadbalancer.passhostheader=false",
	"loadBalancer.sticky.cookie.name=lb", "loadbalancer.sticky.cookie=true", "loadbalancer.sticky.cookie.secure=true",
	"loadbalancer.server.port=81", "loadbalancer.healthcheck.path=/health", "loadbalancer.strategy=p2c",
	"loadbalancer.responseforwarding.flushinterval=10ms", "loadbalancer.server.weight=3",
	"loadbalancer.server.url=http://127.0.0.1:9001",
	"loadbalancer.healthcheck.interval=1h", "loadbalancer.healthcheck.headers.X-A=1"}

// middlewareLabels are labels of a middleware.
var middlewareLabels = []string{"addprefix.prefix=/foo", "stripprefix.prefixes=/foo,/a",
	"headers.customrequestheaders.X-In=1",
	"headers.customresponseheaders.X-Out=", "headers.framedeny=true", "headers.accesscontrolalloworiginlist=*",
	"basicauth.users=test:$apr1$H6uskkkW$IgXLP6ewTrSuBkTrqE8wj/", "redirectscheme.scheme=https", "compress=true",
	"redirectregex.regex=^http://(.*)\nredirectregex.replacement=https://$1\nredirectregex.permanent=true",
	"ratelimit.average=100\nratelimit.burst=50", "ipallowlist.sourcerange=127.0.0.1/32, 10.0.0.0/8",
	"retry.attempts=2",
	"forwardauth.address=http://127.0.0.1:9100/auth/ok\nforwardauth.authresponseheaders=X-User",
	"inflightreq.amount=5",
	"replacepath.path=/new", "replacepathregex.regex=^/foo/(.*)\nreplacepathregex.replacement=/$1",
	"buffering.maxrequestbodybytes=9",
	"errors.status=500-599\nerrors.service=page@file\nerrors.query=/{status}", "chain.middlewares=shared@file",
	"contenttype=true",
	"circuitbreaker.expression=NetworkErrorRatio() > 0.5", "stripprefixregex.regex=/foo/[a-z]+",
	"grpcweb.alloworigins=*",
	"digestauth.users=test:traefik:a2688e031edb4be6a3797f3882655c05", "passtlsclientcert.pem=true"}

// wrongLabels are labels with which Traefik leaves out the whole container.
var wrongLabels = []string{"http.routers.NAME.priority=high", "http.routers.NAME.entrypoint=web",
	"http.services.NAME.loadbalancer.passhostheader=maybe", "http.middlewares.m-NAME.compres=true",
	"http.services.NAME.loadbalancer.server.ports=80"}

// otherLabels are labels for other protocols, and of the container.
var otherLabels = []string{"enable=true", "enable=false", "http.routers.NAME.tls=true", "docker.network=shop",
	"tcp.routers.t-NAME.rule=HostSNI(`*`)\ntcp.routers.t-NAME.entrypoints=tcp\ntcp.services.t-NAME.loadbalancer.server.port=80",
	"udp.routers.u-NAME.entrypoints=udp\nudp.services.u-NAME.loadbalancer.server.port=53",
	"http.routers.second-NAME.rule=Host(`NAME`) && PathPrefix(`/`)\nhttp.routers.second-NAME.service=NAME",
	"http.routers.second-NAME.rule=PathPrefix(`/NAME`)", "tcp.middlewares.i-NAME.inflightconn.amount=3"}

// container returns a container with labels for objects that have its name.
func (g *generator) container(name string) container {
	c := container{Name: name, Labels: map[string]string{}, Ports: []string{"80/tcp"}}
	add := func(prefix, lines string) {
		for line := range strings.SplitSeq(lines, "\n") {
			key, value, _ := strings.Cut("traefik."+prefix+strings.ReplaceAll(line, "NAME", name), "=")
			c.Labels[key] = value
		}
	}
	if !g.maybe(8) {
		add("", "http.routers.NAME.rule="+pick(g, []string{"Host(`NAME.test`)",
			"Host(`NAME.test`) && PathPrefix(`/`)",
			"Host(`NAME.test`) || Host(`NAME`)", "Host(`NAME.test`) && Method(`GET`)", "Host(`NAME"}))
	}
	for range g.IntN(3) {
		add("http.routers."+name+".", pick(g, routerLabels))
	}
	for range g.IntN(3) {
		add("http.services."+name+".", pick(g, serviceLabels))
	}
	if g.maybe(2) {
		add("http.middlewares.m-"+name+".", pick(g, middlewareLabels))
		add("http.routers."+name+".", "middlewares=m-NAME")
	}
	if g.maybe(3) {
		add("", pick(g, otherLabels))
	}
	if g.maybe(12) {
		add("", pick(g, wrongLabels))
		c.Wrong = true
	}
	if g.maybe(9) {
		c.Ports = pick(g, [][]string{nil, {"81/tcp", "80/tcp"}, {"9000/udp", "80/tcp"}})
	}
	scheme := "traefik.http.services." + name + ".loadbalancer.server.scheme"
	port, url := "traefik.http.services."+name+".loadbalancer.server.port",
		"traefik.http.services."+name+".loadbalancer.server.url"
	ported := c.Labels[port] != "" || c.Labels[scheme] != ""
	if c.Ports == nil && c.Labels[port] == "" && c.Labels[url] == "" || ported && c.Labels[url] != "" {
		c.Wrong = true
	}
	return c
}
