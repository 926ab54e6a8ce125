package traefik

import (
	"fmt"
	"testing"
)

// BenchmarkContainers computes the configuration of 10,000 containers with a router
// each: of all of them, and after a change of one.
func BenchmarkContainers(b *testing.B) {
	var list []*Container
	for i := range 10000 {
		name := fmt.Sprintf("web%d", i)
		router, service := ".http.routers."+name, ".http.services."+name
		c := whoami(".enable=true\n"+router+".rule=Host(`"+name+".example.org`)\n"+router+".entrypoints=websecure\n"+
			router+".tls.certresolver=le\n"+service+".loadbalancer.server.port=8080\nother.label=x",
			named(name, fmt.Sprintf("10.0.%d.%d", i/256, i%256), i))
		list = append(list, &c)
	}
	config := func(b *testing.B, d *Docker) {
		if c, problems := d.Config(list); len(c.HTTP.Routers) != len(list) || len(problems) > 0 {
			b.Fatalf("%d routers, problems %v", len(c.HTTP.Routers), problems)
		}
	}
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			config(b, NewDocker(DockerOptions{}))
		}
	})
	b.Run("one", func(b *testing.B) {
		d := NewDocker(DockerOptions{})
		config(b, d)
		for b.Loop() {
			c := *list[5000]
			list[5000] = &c
			config(b, d)
		}
	})
}
