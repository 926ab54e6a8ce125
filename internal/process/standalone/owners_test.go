package standalone_test

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/gateway"
	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
	"fairlead/internal/process/standalone"
)

// project returns a container of a Compose project with labels below "traefik.http.".
func project(name, address string, labels map[string]string) *traefik.Container {
	c := &traefik.Container{ID: name, Name: name, Running: true,
		ExposedPorts: []traefik.Port{{Number: 80, Protocol: "tcp"}},
		Networks:     map[string][]netip.Addr{"net": {netip.MustParseAddr(address)}},
		Labels:       map[string]string{"com.docker.compose.project": name, "com.docker.compose.service": "web"}}
	for key, value := range labels {
		c.Labels["traefik.http."+key] = value
	}
	return c
}

// TestConflictsAreExplained checks the states of objects whose names several projects define, in the running
// gateway: each uses its own, a file's reference is closed, and a foreign mistake disables nothing.
func TestConflictsAreExplained(t *testing.T) {
	labels := func(host, prefix string) map[string]string {
		return map[string]string{"routers.shop.rule": "Host(`" + host + "`)", "routers.shop.middlewares": "auth",
			"middlewares.auth.addprefix.prefix": prefix}
	}
	faulty := labels("c.test", "/c")
	faulty["routers.shop.priority"], faulty["middlewares.auth.addprefix.prefx"] = "high", "/"
	config, problems := traefik.NewDocker(traefik.DockerOptions{}).Config([]*traefik.Container{
		project("a", "10.0.0.1", labels("a.test", "/a")), project("b", "10.0.0.2", labels("b.test", "/b")),
		project("c", "10.0.0.3", faulty)})
	file := model.Config{HTTP: model.HTTP{Routers: map[string]*model.Router{"f@file": {Rule: "Host(`f.test`)",
		Service: "noop@internal", Middlewares: []string{"auth@docker"}}}}}
	all, known := standalone.Together(map[string]standalone.Source{"docker": {Config: config, Problems: problems},
		"file": {Config: file}})
	g, err := gateway.New(model.Static{Default: []string{"web"}, EntryPoints: []model.EntryPoint{{Name: "web",
		Address: ":80"}}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	states := map[string]status.Status{}
	for _, s := range g.Apply(&all, known) {
		states[s.Kind+" "+s.Name] = s
	}
	for object, want := range map[string]struct {
		state  status.State
		reason string
	}{
		"router shop.a@docker":                 {status.Warning, "container a: container b of compose project b defines"},
		"router shop.b@docker":                 {status.Warning, "container b: container a of compose project a defines"},
		"middleware auth.a@docker":             {status.Warning, "references from elsewhere, also from files, are closed"},
		"middleware auth@docker":               {status.Disabled, "refer to one of auth.a@docker, auth.b@docker"},
		"router shop.c.container:c@docker":     {status.Disabled, `value "high"`},
		"middleware auth.c.container:c@docker": {status.Disabled, "prefx"},
		"router f@file":                        {status.Disabled, "middleware auth@docker is disabled: container a: the name is ambiguous"},
	} {
		s := states[object]
		if s.State != want.state || !strings.Contains(strings.Join(s.Reasons, "\n"), want.reason) {
			t.Errorf("%s: %+v, want %s", object, s, want)
		}
	}
	for host, want := range map[string]string{"a.test": "shop.a@docker", "b.test": "shop.b@docker", "c.test": "",
		"f.test": ""} {
		if got, err := g.Explain("", "GET", "http://"+host+"/"); err != nil || got.Router != want {
			t.Errorf("%s takes %q, want %q (%v)", host, got.Router, want, err)
		}
	}
	lost, err := g.Explain("", "GET", "http://c.test/")
	if err != nil || len(lost.Nearest) == 0 || lost.Nearest[0].Router != "shop.c.container:c@docker" ||
		!strings.Contains(strings.Join(lost.Nearest[0].Why, "\n"), `value "high"`) {
		t.Errorf("c.test: nearest routers %+v, %v: want the one that is left out for its priority", lost.Nearest, err)
	}
}
