package traefik

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMessagesHideSecrets writes credentials where they are wrong, and looks for them in the messages.
func TestMessagesHideSecrets(t *testing.T) {
	const marker = "hunter2"
	for _, label := range []string{
		"http.middlewares.m=ann:" + marker,
		"http.middlewares.m.basicauth=ann:" + marker,
		"http.middlewares.m.basicauth.user=ann:" + marker,
		"http.middlewares.m.basicauth.users[0].x=ann:" + marker,
		"http.middlewares.m.digestauth=ann:r:" + marker,
		"http.middlewares.m.headers=Authorization: " + marker,
		"http.middlewares.m.headers.customrequestheaders=Authorization: " + marker,
		"http.middlewares.m.ratelimit.redis=" + marker,
		"http.middlewares.m.plugin=" + marker,
		"http.middlewares.m.plugin.x=" + marker,
		"http.middlewares.m.forwardauth.tls=" + marker,
		"http.services.s.loadbalancer.healthcheck=" + marker,
		"http.services.s.loadbalancer.server=http://ann:" + marker + "@a",
		"http.services.s.loadbalancer.server.url=//ann:" + marker + "@",
		"tcp.services.s.loadbalancer.healthcheck=" + marker,
		"tls.certificates=" + marker,
	} {
		key, value, _ := strings.Cut(label, "=")
		c := whoami("", func(c *Container) { c.Labels["traefik."+key] = value })
		_, problems := NewDocker(DockerOptions{}).Config([]*Container{&c})
		wantHidden(t, label, problems, marker)
	}
	for name, text := range map[string]string{
		"tab.yml":    "http:\n  middlewares:\n    m:\n\t  basicAuth: {users: ['ann:" + marker + "']}\n",
		"colon.yml":  "http:\n  middlewares:\n    m:\n      basicAuth:\n        users: ann: " + marker + "\n",
		"type.yml":   "http: {middlewares: {m: {basicAuth: 'ann:" + marker + "'}}}\n",
		"tab.toml":   "[http.middlewares.m.basicAuth]\nusers = [ 'ann:" + marker + "'\n[x]\n",
		"text.toml":  "[http.middlewares.m.basicAuth]\nusers = ann:" + marker + "\n",
		"type.toml":  "[http.middlewares.m]\nbasicAuth = 'ann:" + marker + "'\n",
		"twice.toml": "[a]\nx = '" + marker + "'\nx = '" + marker + "'\n",
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, problems := Files([]string{path})
		wantHidden(t, name, problems, marker)
	}
}

// wantHidden fails if there is no problem, or if one contains the marker.
func wantHidden(t *testing.T, what string, problems []Problem, marker string) {
	t.Helper()
	if len(problems) == 0 {
		t.Errorf("%s: no problem is reported", what)
	}
	for _, p := range problems {
		if strings.Contains(p.String(), marker) {
			t.Errorf("%s: the message has the secret: %s", what, p)
		}
	}
}
