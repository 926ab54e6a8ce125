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

// BenchmarkLargeLabels reads 200 kB of labels of one container with 2,000 routers, beside 100 other containers: when
// the container starts, and at an event of another one.
func BenchmarkLargeLabels(b *testing.B) {
	large := whoami("", named("large", "10.0.0.3", 1))
	large.Labels = map[string]string{}
	for i := range 2000 {
		key := fmt.Sprintf("traefik.http.routers.r%d.", i)
		large.Labels[key+"rule"] = fmt.Sprintf("Host(`r%d.example.org`) && PathPrefix(`/api`)", i)
		large.Labels[key+"entrypoints"] = "web"
	}
	list := []*Container{&large}
	for i := range 100 {
		c := whoami(fmt.Sprintf(".http.routers.web%d.rule=Host(`web%d.test`)", i, i),
			named(fmt.Sprintf("web%d", i), fmt.Sprintf("10.0.1.%d", i), i+2))
		list = append(list, &c)
	}
	for name, changed := range map[string]int{"large": 0, "another": 50} {
		b.Run(name, func(b *testing.B) {
			d := NewDocker(DockerOptions{})
			d.Config(list)
			for b.Loop() {
				c := *list[changed]
				list[changed] = &c
				if config, problems := d.Config(list); len(config.HTTP.Routers) != 2100 || len(problems) > 0 {
					b.Fatalf("%d routers, problems %v", len(config.HTTP.Routers), problems)
				}
			}
		})
	}
}
