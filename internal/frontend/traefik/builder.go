package traefik

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"fairlead/internal/frontend/traefik/tree"
	"fairlead/internal/model/gateway"
)

// builder completes what the labels of one container leave to defaults.
type builder struct {
	*reporter
	docker    *Docker
	container *Container
	byID      map[string]*Container
	// root is the tree below "traefik". It has the faulty objects too.
	root     *tree.Node
	settings settings
	config   gateway.Config
}

func (b *builder) complete() {
	tcp, udp := b.declared("tcp", "routers", "services"), b.declared("udp", "routers", "services")
	if len(tcp) > 0 {
		b.completeTCP()
	}
	if len(udp) > 0 {
		b.completeUDP()
	}
	if len(tcp)+len(udp) == 0 || len(b.declared("http", "routers", "services", "middlewares")) > 0 {
		b.completeHTTP()
	}
	b.reportTypos(router, b.root.Child("http").Child("routers"), "traefik.http.routers")
	b.reportTypos(tcpRouter, b.root.Child("tcp").Child("routers"), "traefik.tcp.routers")
}

// declared returns the names of the objects that the labels mention, also the faulty
// ones.
func (b *builder) declared(section string, parts ...string) (names []string) {
	for _, part := range parts {
		if n := b.root.Child(section).Child(part); n != nil {
			for _, child := range n.Children {
				names = append(names, child.Name)
			}
		}
	}
	return names
}

// services returns the names of the services that routers of a section may use: those
// of the labels, or the default one.
func (b *builder) services(section string) []string {
	if names := b.declared(section, "services"); len(names) > 0 {
		return names
	}
	return []string{b.container.baseName()}
}

func (b *builder) completeHTTP() {
	c, base := &b.config.HTTP, b.container.baseName()
	services := b.services("http")
	if len(b.declared("http", "routers")) == 0 {
		if len(services) > 1 {
			b.warn("", "the container has no router: it has several services, %s; give it a router with the label "+
				"traefik.http.routers.NAME.service", few(services))
		} else {
			c.Routers = map[string]*gateway.Router{base: {}}
			defer func() {
				if c.Services[services[0]] == nil {
					delete(c.Routers, base)
				}
			}()
		}
	}
	needed := completeRouters(b, router, c.Routers, func(_, object string, r *gateway.Router) (string, bool) {
		ok := b.completeRule(object, &r.Rule) && b.onlyService(object, &r.Service, services)
		return r.Service, ok
	})
	completeServices(b, "http", service, &c.Services, gateway.Service{LoadBalancer: &gateway.LoadBalancer{}}, needed,
		func(object string, s *gateway.Service) error { return b.httpServer(object, s.LoadBalancer) })
}

func (b *builder) completeTCP() {
	c := &b.config.TCP
	services := b.services("tcp")
	needed := completeRouters(b, tcpRouter, c.Routers, func(name, object string, r *gateway.TCPRouter) (string, bool) {
		if r.Rule == "" {
			b.fail(object, "it has no rule: add the label traefik.tcp.routers.%s.rule=HostSNI(`NAME`)", name)
			return "", false
		}
		ok := b.onlyService(object, &r.Service, services)
		return r.Service, ok
	})
	completeServices(b, "tcp", tcpService, &c.Services, gateway.TCPService{LoadBalancer: &gateway.TCPLoadBalancer{}},
		needed, func(object string, s *gateway.TCPService) (err error) {
			lb := s.LoadBalancer
			lb.Servers, err = fillServer(b, lb.Servers, func(server *gateway.TCPServer) (err error) {
				server.Address, err = b.locate(object).serverAddress(server.Port, "tcp")
				server.Port = ""
				return err
			})
			return err
		})
}

func (b *builder) completeUDP() {
	c := &b.config.UDP
	services := b.services("udp")
	needed := completeRouters(b, udpRouter, c.Routers, func(_, object string, r *gateway.UDPRouter) (string, bool) {
		ok := b.onlyService(object, &r.Service, services)
		return r.Service, ok
	})
	completeServices(b, "udp", udpService, &c.Services, gateway.UDPService{LoadBalancer: &gateway.UDPLoadBalancer{}},
		needed, func(object string, s *gateway.UDPService) (err error) {
			lb := s.LoadBalancer
			lb.Servers, err = fillServer(b, lb.Servers, func(server *gateway.UDPServer) (err error) {
				server.Address, err = b.locate(object).serverAddress(server.Port, "udp")
				server.Port = ""
				return err
			})
			return err
		})
}

// completeRouters removes the routers that the function cannot complete. It reports whether one of the others needs the
// default service. The function returns the service of a router.
func completeRouters[R any](b *builder, kind string, all map[string]*R,
	complete func(name, object string, r *R) (service string, ok bool)) (needed bool) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		service, ok := complete(name, b.object(kind, name), all[name])
		if !ok {
			delete(all, name)
			continue
		}
		needed = needed || strings.TrimSuffix(service, "@docker") == b.container.baseName()
	}
	return needed
}

// completeServices adds the default service if labels define none, and removes the services whose server cannot be
// filled.
func completeServices[S any](b *builder, section, kind string, all *map[string]*S, byDefault S, needed bool,
	fill func(object string, s *S) error) {
	if len(b.declared(section, "services")) == 0 {
		*all = map[string]*S{b.container.baseName(): &byDefault}
		defer b.mute(!needed)()
	}
	for _, name := range slices.Sorted(maps.Keys(*all)) {
		object := b.object(kind, name)
		if !b.usable(object, fill(object, (*all)[name])) {
			delete(*all, name)
		}
	}
}

// mute returns what removes the problems reported from now on, if wanted. A default
// service that no router of the container uses is for routers elsewhere.
func (b *builder) mute(wanted bool) (end func()) {
	before := len(b.problems)
	return func() {
		if wanted {
			b.problems = b.problems[:before]
		}
	}
}

// completeRule sets an empty rule to the default one.
func (b *builder) completeRule(object string, rule *string) bool {
	if *rule != "" {
		return true
	}
	if b.docker.ruleErr != nil {
		b.fail(object, "it has no rule, and the default rule is faulty")
		return false
	}
	c := b.container
	text, err := execute(b.docker.rule, struct {
		Name, ContainerName string
		Labels              map[string]string
	}{c.baseName(), c.Name, c.Labels})
	switch {
	case err != nil:
		b.fail(object, "it has no rule, and for the default rule: %v", err)
	case text == "":
		b.fail(object, "it has no rule, and the default rule is empty for this container")
	}
	*rule = text
	return err == nil && text != ""
}

// onlyService sets an empty name of a service to the only service there is.
func (b *builder) onlyService(object string, name *string, services []string) bool {
	if *name != "" {
		return true
	}
	if len(services) == 1 {
		*name = services[0]
		return true
	}
	text := fmt.Sprintf("it names no service, and the container has several, %s: add the router's label \"service\"",
		few(services))
	services = services[:min(len(services), mostNamed)]
	for i, a := range services {
		for _, other := range services[i+1:] {
			if alike(a, other) {
				text += fmt.Sprintf("; if %q and %q are the same service, write one name in all labels", a, other)
			}
		}
	}
	b.fail(object, "%s", text)
	return false
}

// mostNamed is how many names a message has.
const mostNamed = 10

// few returns the names as a list, which says how many are left out.
func few(names []string) string {
	if left := len(names) - mostNamed; left > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), left)
	}
	return strings.Join(names, ", ")
}

// httpServer fills the only server of a load balancer.
func (b *builder) httpServer(object string, lb *gateway.LoadBalancer) error {
	servers, err := fillServer(b, lb.Servers, func(s *gateway.Server) error {
		switch {
		case s.URL != "" && b.docker.scoped:
			return errors.New("labelScope=project keeps servers in their project: write server.port in place of " +
				"server.url, or define the service in a file")
		case s.URL != "":
			return checkURL(s)
		}
		scheme := s.Scheme
		if scheme == "" {
			scheme = "http"
		}
		if !slices.Contains([]string{"http", "https", "h2c"}, scheme) {
			return fmt.Errorf("scheme %q: want http, https or h2c", s.Scheme)
		}
		address, err := b.locate(object).serverAddress(s.Port, "tcp")
		s.URL, s.Scheme, s.Port = scheme+"://"+address, "", ""
		return err
	})
	lb.Servers = servers
	return err
}

// checkURL checks a server that is given with its URL.
func checkURL(s *gateway.Server) error {
	if s.Scheme != "" || s.Port != "" {
		return errors.New("the server has a URL and also a port or a scheme: leave out server.port and server.scheme")
	}
	if u, err := url.Parse(s.URL); err != nil || u.Host == "" {
		return fmt.Errorf("URL %q of the server: want SCHEME://HOST:PORT", gateway.ShownURL(s.URL))
	}
	return nil
}

// fillServer completes the one server that labels describe. There is none while the
// container is not ready for requests, or has no address that the gateway reaches.
func fillServer[S any](b *builder, servers []S, fill func(*S) error) ([]S, error) {
	if len(servers) > 1 {
		return nil, errors.New("labels describe one server per container: write loadbalancer.server.port without " +
			"an index")
	}
	if len(servers) == 0 {
		servers = make([]S, 1)
	}
	err := fill(&servers[0])
	if err != nil || !b.container.ready() {
		return nil, err
	}
	return servers, nil
}

// locate returns what finds the address for an object.
func (b *builder) locate(object string) *locator {
	return &locator{Container: b.container, opt: b.docker.opt, settings: b.settings, others: b.byID,
		warn: func(format string, args ...any) { b.warn(object, format, args...) }}
}

// usable reports an error of a service. Without an address the service stays.
func (b *builder) usable(object string, err error) bool {
	var address *addressError
	switch {
	case err == nil:
		return true
	case errors.As(err, &address):
		if b.container.ready() {
			b.warn(object, "it has no server of this container: %v", err)
		}
		return true
	}
	b.fail(object, "%v", err)
	return false
}
