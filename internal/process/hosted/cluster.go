package hosted

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/gateway"
	"fairlead/internal/gateway/status"
	"fairlead/internal/model"
	values "fairlead/internal/model/gateway"
	"fairlead/internal/process/standalone"
)

// setCluster makes the objects of the cluster one of the sources.
func (r *Runner) setCluster(c *model.ClusterGateway) {
	if c.Equal(r.cluster) {
		return
	}
	if c == nil {
		r.cluster = nil
		delete(r.sources, fromCluster)
		return
	}
	config := traefik.QualifiedAs(fromCluster, c.Config)
	r.cluster = c
	var problems []traefik.Problem
	for _, p := range c.Problems {
		kind := p.Kind
		if kind == "TLS options" {
			kind = "tls options"
		}
		problems = append(problems, traefik.Problem{Object: kind + " " + p.Name + "@" + fromCluster,
			Source: "record of the cluster", Text: p.Text, Warning: p.Warning})
	}
	before := r.sources[fromCluster].Config
	standalone.Reuse(&config, &before)
	r.sources[fromCluster] = standalone.Source{Config: config, Problems: problems}
}

// ofHosts is the reason of an object that refers to one that each host declares on its own.
var ofHosts = regexp.MustCompile(`@(` + strings.Join(values.ProviderNames(), "|") + `) (does not exist|is disabled)`)

// CheckCluster returns what no host can use of the objects of a cluster. It does not report what hosts
// differ in: entry points, resolvers, objects of files and containers.
func CheckCluster(c values.Config) (problems []model.GatewayProblem) {
	config := traefik.QualifiedAs(fromCluster, c)
	withoutSelectors(&config)
	checking, err := gateway.Checking(anyHost(config), &config, nil)
	if err != nil {
		return []model.GatewayProblem{{Text: err.Error()}}
	}
	for _, s := range checking.Status() {
		if s.State != status.Disabled {
			continue
		}
		for _, reason := range s.Reasons {
			if !ofHosts.MatchString(reason) {
				problems = append(problems, model.GatewayProblem{Kind: s.Kind,
					Name: strings.TrimSuffix(s.Name, "@"+fromCluster),
					Text: strings.ReplaceAll(reason, "@"+fromCluster, "")})
			}
		}
	}
	return problems
}

// anyHost returns the settings of a host that has all entry points and resolvers that routers name.
func anyHost(c values.Config) (s values.Static) {
	entry := func(suffix string, names ...string) {
		for _, name := range names {
			if !slices.ContainsFunc(s.EntryPoints, func(e values.EntryPoint) bool { return e.Name == name }) {
				s.EntryPoints = append(s.EntryPoints, values.EntryPoint{Name: name,
					Address: fmt.Sprintf(":%d%s", len(s.EntryPoints)+1, suffix)})
			}
		}
	}
	s.Resolvers = map[string]*values.Resolver{}
	resolver := func(tls *values.RouterTLS) {
		if tls != nil && tls.CertResolver != "" {
			s.Resolvers[tls.CertResolver] = &values.Resolver{}
		}
	}
	entry("", "default")
	for _, r := range c.HTTP.Routers {
		entry("", r.EntryPoints...)
		resolver(r.TLS)
	}
	for _, r := range c.TCP.Routers {
		entry("", r.EntryPoints...)
		if r.TLS != nil {
			resolver(&r.TLS.RouterTLS)
		}
	}
	for _, r := range c.UDP.Routers {
		entry("/udp", r.EntryPoints...)
	}
	return s
}

// withoutSelectors removes the servers that depend on the host.
func withoutSelectors(c *values.Config) {
	keepServers(c.HTTP.Services, func(s values.Server) bool { return s.URL != "" })
	keepServers(c.TCP.Services, func(s values.TCPServer) bool { return s.Address != "" })
	keepServers(c.UDP.Services, func(s values.UDPServer) bool { return s.Address != "" })
}

func keepServers[S, T any, P values.Balanced[S, T]](services map[string]P, keep func(T) bool) {
	for name, s := range services {
		services[name] = s.WithServers(slices.DeleteFunc(s.Servers(), func(one T) bool { return !keep(one) }))
	}
}
