package traefik_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/frontend/traefik"
)

// TestProblemsHideValues checks that problems of files with syntax errors, and of values at wrong places, do
// not show the values: they can be credentials.
func TestProblemsHideValues(t *testing.T) {
	const users = "http:\n  middlewares:\n    a:\n      basicAuth:\n        users: "
	const server = "http:\n  services:\n    a: {loadBalancer: {servers: "
	for _, text := range []string{users + "*marker\n", users + "!!int marker\n", users + "[!!bool marker]\n",
		users + "[!!float \"marker\"]\n", "marker", "http: marker\n", "http: {middlewares: marker}\n",
		"http: {middlewares: {a: marker}}\n", "tls: {certificates: marker}\n",
		"tls: {certificates: [{certFile: \"-----BEGIN CERTIFICATE marker\"}]}\n",
		server + "'http://u:p/marker@h/'}}\n", server + "'http://u:p?marker@h/'}}\n"} {
		path := filepath.Join(t.TempDir(), "a.yml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, problems := traefik.Files([]string{path})
		if len(problems) == 0 {
			t.Errorf("%q: no problem", text)
		}
		for _, p := range problems {
			if strings.Contains(p.String(), "marker") {
				t.Errorf("%q: %v", text, p)
			}
		}
	}
}

// TestValuesOfSections checks that values where names are expected are reported, and that the rest stays.
func TestValuesOfSections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yml")
	const text = "http: {middlewares: x, services: {a: {loadBalancer: {servers: []}}}}\n" +
		"tcp: x\nudp: {routers: x}\ntls: {certificates: x}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, problems := traefik.Files([]string{path})
	for i, want := range []string{"line 1: http.middlewares: ", "line 2: tcp: ", "line 3: udp.routers: ",
		"line 4: tls.certificates: "} {
		if i >= len(problems) || !strings.HasPrefix(problems[i].Text, want+"its value has no effect") {
			t.Fatalf("problems: %v, want %s", problems, want)
		}
	}
	if config.HTTP.Services["a@file"] == nil {
		t.Errorf("configuration: %+v", config.HTTP)
	}
}

// TestLabelsOfSections checks the labels that name a section only, and two that only files may have.
func TestLabelsOfSections(t *testing.T) {
	for key, want := range map[string]string{"traefik.http": "traefik.http: its value has no effect",
		"traefik.http.routers": "traefik.http.routers: its value has no effect",
		"traefik.http.services.x.highestrandomweight.services[0].name": "label " +
			"traefik.http.services.x.highestrandomweight is ignored: there is no such label"} {
		d := traefik.NewDocker(traefik.DockerOptions{})
		config, problems := d.Config([]*traefik.Container{{ID: "1", Name: "c", Running: true, NetworkMode: "host",
			ExposedPorts: []traefik.Port{{Number: 80, Protocol: "tcp"}},
			Labels: map[string]string{key: "marker", "traefik.http.routers.r.rule": "Host(`a.test`)",
				"traefik.http.services.r.loadbalancer.server.port": "80", "traefik.http.routers.r.service": "r"}}})
		if len(problems) == 0 || !strings.HasPrefix(problems[0].Text, want) || config.HTTP.Routers["r@docker"] == nil {
			t.Errorf("%s: problems %v, routers %v", key, problems, config.HTTP.Routers)
		}
	}
}

// TestDuplicatesHideValues checks that the report of labels that differ in case does not show the value.
func TestDuplicatesHideValues(t *testing.T) {
	d := traefik.NewDocker(traefik.DockerOptions{})
	_, problems := d.Config([]*traefik.Container{{ID: "1", Name: "c", Running: true, NetworkMode: "host",
		Labels: map[string]string{"traefik.http.middlewares.a.basicauth.users": "u:marker",
			"traefik.http.middlewares.A.basicauth.users": "u:marker"}}})
	found := false
	for _, p := range problems {
		found = found || strings.Contains(p.Text, "in different cases")
		if strings.Contains(p.String(), "marker") {
			t.Errorf("%v", p)
		}
	}
	if !found {
		t.Errorf("problems: %v", problems)
	}
}
