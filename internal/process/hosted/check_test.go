package hosted

import (
	"strings"
	"testing"

	"fairlead/internal/model"
	values "fairlead/internal/model/gateway"
)

func declared() model.Gateway {
	return model.Gateway{
		Static: values.Static{EntryPoints: []values.EntryPoint{{Name: "web", Address: ":80"}},
			Default: []string{"web"}},
		Config: values.Config{HTTP: values.HTTP{
			Routers: map[string]*values.Router{"shop": {Rule: "Host(`a.test`)", Service: "shop",
				Middlewares: []string{"auth@docker"}}},
			Services: map[string]*values.Service{"shop": {LoadBalancer: &values.LoadBalancer{
				Servers: []values.Server{{Service: "web"}}}}},
		}},
	}
}

// TestMistakes checks which mistakes a declared gateway has, and where.
func TestMistakes(t *testing.T) {
	mistakes := func(change func(*model.Gateway)) string {
		t.Helper()
		g := declared()
		change(&g)
		c, err := NewChecked(g)
		if err != nil {
			t.Fatal(err)
		}
		return c.Mistakes().Error()
	}
	for want, change := range map[string]func(*model.Gateway){
		// What labels may define later is a mistake only if no labels are read.
		"": func(g *model.Gateway) { g.Static.Docker = &values.Docker{} },
		"gateway.http.routers.shop: middleware auth@docker does not exist": func(*model.Gateway) {},
		"gateway.http.routers.shop: service shpo does not exist: do you mean shop?": func(g *model.Gateway) {
			g.Config.HTTP.Routers["shop"].Service = "shpo"
		},
		"gateway.tls.certificates[0]: file a.pem: want an absolute path": func(g *model.Gateway) {
			g.Config.TLS.Certificates = []values.Certificate{{CertFile: "a.pem", KeyFile: "/etc/a.key"}}
		},
		"gateway.http.routers.shop: certificate for a.test: resolver le does not exist": func(g *model.Gateway) {
			g.Config.HTTP.Routers["shop"].TLS = &values.RouterTLS{CertResolver: "le"}
		},
		"gateway.tcp.routers.db: certificate for *.test: *.test: authorities give a wildcard only for a dnsChallenge": func(
			g *model.Gateway) {
			g.Static.Resolvers = map[string]*values.Resolver{"le": {TLSChallenge: true}}
			g.Config.TCP.Routers = map[string]*values.TCPRouter{"db": {Rule: "HostSNI(`a.test`)", Service: "db",
				TLS: &values.TCPRouterTLS{RouterTLS: values.RouterTLS{CertResolver: "le",
					Domains: []values.Domain{{Main: "*.test"}}}}}}
		},
		"gateway.accesslog: want filePath": func(g *model.Gateway) { g.Static.AccessLog = &values.AccessLog{} },
	} {
		got := mistakes(change)
		if !strings.Contains("\n"+got, "\n"+want) || want == "" && got != "" {
			t.Errorf("mistakes %q, want %q", got, want)
		}
	}
}
