package datagram

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/stream"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// The kinds of objects, as front ends name them too.
const (
	RouterKind  = "UDP router"
	ServiceKind = "UDP service"
)

// Route is the router of an entry point.
type Route struct {
	router  string
	service service
}

// Use is what services keep when the configuration changes.
type Use struct {
	// servers are by service and address, turns by service.
	servers map[string]*Server
	turns   map[string]*atomic.Uint64
}

// turn returns what counts the turns of a service.
func (u Use) turn(now Use, service string) *atomic.Uint64 {
	return stream.Keep(u.turns, now.turns, service, func() *atomic.Uint64 { return new(atomic.Uint64) })
}

// builder makes the routers of one configuration.
type builder struct {
	static    *gateway.Static
	config    *gateway.UDP
	status    *status.Table
	now, next Use
	services  map[string]service
	building  map[string]bool
}

// Build returns the UDP router of each entry point that has one, and what they use: it takes
// from now what is in use already. Faulty objects are left out, and their status says why.
func Build(static *gateway.Static, config *gateway.UDP, statuses *status.Table, now Use) (map[string]*Route, Use) {
	b := &builder{static: static, config: config, status: statuses, now: now,
		next:     Use{map[string]*Server{}, map[string]*atomic.Uint64{}},
		services: map[string]service{}, building: map[string]bool{}}
	for _, name := range slices.Sorted(maps.Keys(config.Services)) {
		b.service(name)
	}
	routes := map[string]*Route{}
	for _, name := range slices.Sorted(maps.Keys(config.Routers)) {
		var err error
		// The last thing that router does for an entry point is to add the router to it.
		failed := recovery.Object(RouterKind+" "+name, func() { err = b.router(routes, name, config.Routers[name]) })
		if err = cmp.Or(failed, err); err != nil {
			statuses.Disable(RouterKind, name, err.Error())
		}
	}
	return routes, b.next
}

// Start removes the servers of the last configuration that this one, which is put to use, lacks.
func (u Use) Start(last Use) {
	for k, s := range last.servers {
		if u.servers[k] == nil {
			s.remove()
		}
	}
}

// router adds a router to its entry points. As in Traefik, each has one; here it is the first
// by name.
func (b *builder) router(routes map[string]*Route, name string, value *gateway.UDPRouter) error {
	if b.status.Disabled(RouterKind, name) {
		return nil
	}
	service := b.service(value.Service)
	if service == nil {
		return errors.New(status.Unusable(b.status, ServiceKind, value.Service, b.config.Services))
	}
	entries := value.EntryPoints
	if len(entries) == 0 {
		for _, e := range b.static.EntryPoints {
			if e.IsUDP() {
				entries = append(entries, e.Name)
			}
		}
	}
	if len(entries) == 0 {
		return errors.New("there is no UDP entry point: add one, for example --entrypoints.dns.address=:53/udp")
	}
	var missing []string
	for _, entry := range entries {
		if err := b.free(routes, entry); err != nil {
			missing = append(missing, err.Error())
		}
	}
	report := b.status.Disable
	if len(missing) < len(entries) {
		report = b.status.Warn // it is in use at another entry point
	}
	for _, reason := range missing {
		report(RouterKind, name, reason)
	}
	for _, entry := range entries {
		if b.free(routes, entry) == nil {
			routes[entry] = &Route{name, service}
		}
	}
	return nil
}

// free says why an entry point cannot have another router.
func (b *builder) free(routes map[string]*Route, entry string) error {
	if !slices.ContainsFunc(b.static.EntryPoints, func(e gateway.EntryPoint) bool {
		return e.Name == entry && e.IsUDP()
	}) {
		return fmt.Errorf("UDP entry point %s does not exist", entry)
	}
	if r := routes[entry]; r != nil {
		return fmt.Errorf("entry point %s has the router %s already: a UDP entry point has one router", entry,
			r.router)
	}
	return nil
}

// service returns the service, nil if it cannot be used.
func (b *builder) service(name string) service {
	if s, ok := b.services[name]; ok {
		return s
	}
	value := b.config.Services[name]
	if value == nil || b.status.Disabled(ServiceKind, name) {
		return nil
	}
	if b.building[name] {
		b.status.Disable(ServiceKind, name, "it contains itself")
		return nil
	}
	b.building[name] = true
	var s service
	var err error
	// What it has taken from the last configuration is by its name, and nothing else has it.
	failed := recovery.Object(ServiceKind+" "+name, func() { s, err = b.newService(name, value) })
	if err = cmp.Or(failed, err); err != nil {
		b.status.Disable(ServiceKind, name, err.Error())
		s = nil
	}
	b.services[name] = s
	return s
}

func (b *builder) newService(name string, value *gateway.UDPService) (service, error) {
	switch {
	case value.LoadBalancer != nil:
		return b.balancer(name, value.LoadBalancer)
	case value.Weighted == nil:
		return nil, errors.New("it has no loadBalancer or weighted")
	}
	weights, err := stream.Weights(value.Weighted.Services)
	if err != nil {
		return nil, err
	}
	var parts []service
	for _, part := range value.Weighted.Services {
		s := b.service(part.Name)
		if s == nil {
			return nil, errors.New(status.Unusable(b.status, ServiceKind, part.Name, b.config.Services))
		}
		parts = append(parts, s)
	}
	return newWeighted(parts, weights, b.next.turn(b.now, name)), nil
}

func (b *builder) balancer(name string, value *gateway.UDPLoadBalancer) (service, error) {
	for _, v := range value.Servers {
		if _, err := stream.ParseServer(v.Address, false); err != nil {
			return nil, err
		}
	}
	to := &balancer{turn: b.next.turn(b.now, name)}
	for _, v := range value.Servers {
		to.servers = append(to.servers, stream.Keep(b.next.servers, b.now.servers, name+" "+v.Address,
			func() *Server { return newServer(v.Address) }))
	}
	return to, nil
}
