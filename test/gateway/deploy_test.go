package gateway_test

import (
	"fmt"
	"strings"
	"testing"
)

// deployment is the labels of one deployment of a site: its names are the same each time, and the rule, the
// middleware and the settings of the service are others.
func deployment(site, project string, round int) []string {
	rules := []string{"Host(`" + site + ".example.com`)", "Host(`" + site + ".example.com`) && PathPrefix(`/`)"}
	router, service := "traefik.http.routers."+site+".", "traefik.http.services."+site+".loadbalancer."
	labels := []string{"traefik.enable=true", router + "rule=" + rules[round/2%2], router + "middlewares=" + site,
		fmt.Sprintf("traefik.http.middlewares.%s.headers.customrequestheaders.X-Round=%d", site, round),
		service + "server.port=80", service + "strategy=" + []string{"wrr", "p2c"}[round%2]}
	if project != "" {
		// Platforms such as Coolify make each deployment another service of the project.
		labels = append(labels, "com.docker.compose.project="+project,
			fmt.Sprintf("com.docker.compose.service=%s-%d", site, round))
	}
	return labels
}

// deploy starts a container with labels.
func (x *example) deploy(name string, labels []string) {
	x.Helper()
	args := []string{"run", "-d", "--name", name}
	for _, l := range labels {
		args = append(args, "--label", l)
	}
	x.docker(append(args, "--entrypoint", "/web", "web", "serve", name)...)
}

// TestStartFirst deploys sites under load, with other labels each time: the new container starts beside the
// old one, then the old one stops. A container of another project has the same names all the time, and is
// made again, too. No request may fail. `make soak` runs it with 500 requests per second and 50 deployments
// of each site.
func TestStartFirst(t *testing.T) {
	x := newStack(t).onHost()
	x.gateway([]string{"-v", "/var/run/docker.sock:/var/run/docker.sock"}, "--providers.docker",
		"--providers.docker.exposedbydefault=false")
	for site, project := range map[string]string{"shop": "shop", "blog": ""} {
		t.Run(site, func(t *testing.T) {
			x := &example{stack: &stack{T: t, engine: x.engine, web: x.web}, host: x.host}
			name := func(round int) string { return fmt.Sprintf("%s-%d", site, round) }
			url := "http://" + site + ".example.com/"
			x.deploy(name(0), deployment(site, project, 0))
			x.until(200, "GET", url)
			l := (&load{client: x.client(), url: url}).start(t, setting(t, "FAIRLEAD_GATEWAY_RATE", 200))
			for round := 1; round <= setting(t, "FAIRLEAD_GATEWAY_DEPLOYMENTS", 2); round++ {
				x.foreign(site, round)
				x.deploy(name(round), deployment(site, project, round))
				x.patiently(func() (bool, string) {
					_, body := x.ask("GET", url)
					return strings.HasPrefix(body, name(round)+" "), "the new container has no request: " + body
				})
				x.docker("stop", name(round-1))
				x.docker("rm", name(round-1))
				wantAll(t, name(round), l.next())
			}
			wantAll(t, "end", l.end())
			x.docker("rm", "--force", "foreign-"+site)
		})
	}
}

// foreign makes a container of another project again that defines the names of a site, and refuses all
// clients.
func (x *example) foreign(site string, round int) {
	x.Helper()
	if round > 1 {
		x.docker("rm", "--force", "foreign-"+site)
	}
	x.deploy("foreign-"+site, []string{"traefik.enable=true", "com.docker.compose.project=foreign",
		"traefik.http.routers." + site + ".rule=Host(`foreign.example.com`)",
		"traefik.http.routers." + site + ".middlewares=" + site,
		"traefik.http.middlewares." + site + ".ipallowlist.sourcerange=192.0.2.1",
		"traefik.http.services." + site + ".loadbalancer.server.port=81"})
}
