package traefik

import (
	"strings"
	"testing"
)

// TestPanicConcernsOneContainer reads containers of which one panics: it has no routers, a problem says why, and the
// others have theirs.
func TestPanicConcernsOneContainer(t *testing.T) {
	d := NewDocker(DockerOptions{})
	d.accept = func(labels map[string]string) bool {
		if _, bad := labels["traefik.bad"]; bad {
			panic("no constraint")
		}
		return true
	}
	good, bad := whoami("", named("good", "10.0.0.3", 1)), whoami(".bad=true", named("bad", "10.0.0.4", 2))
	for range 2 {
		config, problems := d.Config([]*Container{&good, &bad})
		if len(config.HTTP.Routers) != 1 || config.HTTP.Routers["good@docker"] == nil {
			t.Errorf("routers %v, want good@docker", config.HTTP.Routers)
		}
		if texts := problemTexts(problems); len(texts) != 1 || !strings.HasPrefix(texts[0],
			"container bad: internal error at ") {
			t.Errorf("problems %q", texts)
		}
	}
}
