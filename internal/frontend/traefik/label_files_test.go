package traefik

import (
	"slices"
	"strings"
	"testing"

	"fairlead/internal/model/gateway"
)

// TestLabelsNameNoFiles checks that the labels of a container make the gateway read no file, except for those that
// its settings allow.
func TestLabelsNameNoFiles(t *testing.T) {
	c := whoami(`.http.middlewares.plain.basicauth.users=a:b
		.http.middlewares.basic.basicauth.usersfile=/etc/shadow
		.http.middlewares.digest.digestauth.usersfile=/etc/shadow
		.http.middlewares.key.forwardauth.address=http://a
		.http.middlewares.key.forwardauth.tls.key=/etc/ssl/private/host.key
		.http.middlewares.hidden.forwardauth.tls.ca=/x/-----BEGIN
		.http.middlewares.text.forwardauth.tls.ca=-----BEGIN CERTIFICATE-----
		.http.middlewares.allowed.basicauth.usersfile=/etc/users
		.http.middlewares.near.basicauth.usersfile=/etc/users/../shadow
		.http.middlewares.relative.basicauth.usersfile=users`)
	opt := DockerOptions{Docker: gateway.Docker{LabelFiles: []string{"/etc/users", "users"}}}
	config, problems := NewDocker(opt).Config([]*Container{&c})
	var names, refused []string
	for name := range config.HTTP.Middlewares {
		names = append(names, strings.TrimSuffix(name, "@docker"))
	}
	for _, p := range problems {
		if strings.Contains(p.Text, "labels must not name files") {
			refused = append(refused, strings.TrimSuffix(strings.TrimPrefix(p.Object, "middleware "), "@docker"))
		}
	}
	slices.Sort(names)
	if want := []string{"allowed", "plain", "text"}; !slices.Equal(names, want) {
		t.Errorf("the middlewares are %q, want %q", names, want)
	}
	if want := []string{"basic", "digest", "hidden", "key", "near", "relative"}; !slices.Equal(refused, want) {
		t.Errorf("refused are %q, want %q", refused, want)
	}
}
