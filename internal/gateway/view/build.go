package view

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/status"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// Source is what is shown.
type Source struct {
	Static *gateway.Static
	Config *gateway.Config
	// Objects are the states of all objects.
	Objects []status.Status
	// Down returns the URLs of an HTTP service's servers that checks or failed requests have taken
	// out, TCPDown the addresses of a TCP service's servers.
	Down, TCPDown func(service string) []string
	// Failures returns the last failures of an HTTP service's servers, by their URLs as shown.
	Failures     func(service string) map[string]shown.Failure
	Certificates []shown.Certificate
}

// Of returns the objects of a configuration.
func Of(from Source) RawData {
	d := RawData{map[string]Router{}, map[string]Middleware{}, map[string]Service{}, map[string]Router{},
		map[string]Middleware{}, map[string]Service{}, map[string]Router{}, map[string]Service{}, from.Certificates,
		map[string]SourceState{}}
	for _, o := range from.Objects {
		if o.Kind == "source" {
			d.Sources[o.Name] = SourceState{string(o.State), o.Reasons}
			continue
		}
		_, provider, _ := strings.Cut(o.Name, "@")
		info := Info{Name: o.Name, Provider: provider, Status: string(o.State), Errors: o.Reasons}
		// add only reads the configuration, and adds the object last.
		if err := recovery.Object(o.Kind+" "+o.Name, func() { from.add(&d, o.Kind, info) }); err != nil {
			info.Errors = append(slices.Clone(info.Errors), err.Error())
			(&Source{Config: &gateway.Config{}}).add(&d, o.Kind, info)
		}
	}
	link(d.Routers, d.Services, d.Middlewares)
	link(d.TCPRouters, d.TCPServices, d.TCPMiddlewares)
	link(d.UDPRouters, d.UDPServices, nil)
	for _, routers := range []map[string]Router{d.Routers, d.TCPRouters, d.UDPRouters} {
		for name, r := range routers {
			r.Service = strings.TrimSuffix(r.Service, "@"+r.Provider)
			routers[name] = r
		}
	}
	return d
}

// add adds an object. The gateway's own have no value in the configuration.
func (s *Source) add(d *RawData, kind string, info Info) {
	name, c := info.Name, s.Config
	switch kind {
	case "router":
		d.Routers[name] = s.router(info, c.HTTP.Routers[name])
	case "service":
		d.Services[name] = s.service(info, c.HTTP.Services[name])
	case "middleware":
		d.Middlewares[name] = middleware(info, c.HTTP.Middlewares[name])
	case "TCP router":
		d.TCPRouters[name] = s.tcpRouter(info, c.TCP.Routers[name])
	case "TCP service":
		d.TCPServices[name] = s.tcpService(info, c.TCP.Services[name])
	case "TCP middleware":
		d.TCPMiddlewares[name] = middleware(info, c.TCP.Middlewares[name])
	case "UDP router":
		d.UDPRouters[name] = s.udpRouter(info, c.UDP.Routers[name])
	case "UDP service":
		d.UDPServices[name] = udpService(info, c.UDP.Services[name])
	}
}

func (s *Source) router(info Info, v *gateway.Router) Router {
	r := Router{Info: info}
	if v == nil {
		return r
	}
	r.EntryPoints, r.Middlewares, r.Service, r.RuleSyntax = v.EntryPoints, v.Middlewares, v.Service, v.RuleSyntax
	r.Rule, r.Priority, r.TLS = v.Rule, cmp.Or(v.Priority, len(v.Rule)), form(v.TLS)
	r.Using = s.using(&r, false)
	s.complete(&r, v.Observability)
	return r
}

func (s *Source) tcpRouter(info Info, v *gateway.TCPRouter) Router {
	r := Router{Info: info}
	if v == nil {
		return r
	}
	r.EntryPoints, r.Middlewares, r.Service, r.RuleSyntax = v.EntryPoints, v.Middlewares, v.Service, v.RuleSyntax
	r.Rule, r.Priority, r.TLS = v.Rule, v.Priority, form(v.TLS)
	if r.Priority == 0 {
		if r.Priority = len(v.Rule); v.Rule == "HostSNI(`*`)" {
			r.Priority = -1
		}
	}
	r.Using = s.using(&r, false)
	if len(r.EntryPoints) == 0 {
		r.EntryPoints = s.Static.Default
	}
	return r
}

func (s *Source) udpRouter(info Info, v *gateway.UDPRouter) Router {
	r := Router{Info: info}
	if v != nil {
		r.EntryPoints, r.Service = v.EntryPoints, v.Service
		r.Using = s.using(&r, true)
	}
	return r
}

// using returns the entry points where a router is in use: those that it names, or the default
// ones. UDP routers without names are at all that receive datagrams.
func (s *Source) using(r *Router, udp bool) (names []string) {
	if r.Status == "disabled" {
		return nil
	}
	for _, e := range s.Static.EntryPoints {
		named := slices.Contains(r.EntryPoints, e.Name)
		if len(r.EntryPoints) == 0 {
			named = udp || slices.Contains(s.Static.Default, e.Name)
		}
		if named && e.IsUDP() == udp {
			names = append(names, e.Name)
		}
	}
	return names
}

func (s *Source) service(info Info, v *gateway.Service) Service {
	if v == nil {
		return Service{Info: info}
	}
	shown := func(part any) any { return written(part, info.Provider) }
	service := Service{Info: info, LoadBalancer: shown(form(v.LoadBalancer)), Weighted: shown(form(v.Weighted)),
		Mirroring: shown(form(v.Mirroring)), Failover: shown(form(v.Failover)),
		HighestRandomWeight: shown(form(v.HighestRandomWeight))}
	service.Type = service.kind()
	if v.LoadBalancer != nil {
		down := s.Down(info.Name)
		service.LastFailures = s.Failures(info.Name)
		service.ServerStatus = serverStatus(v.Servers(), func(at gateway.Server) (string, bool) {
			return gateway.ShownURL(at.URL), slices.Contains(down, at.URL) || at.Down != ""
		})
	}
	return service
}

func (s *Source) tcpService(info Info, v *gateway.TCPService) Service {
	if v == nil {
		return Service{Info: info}
	}
	service := Service{Info: info, LoadBalancer: form(v.LoadBalancer), Weighted: form(v.Weighted)}
	service.Type = service.kind()
	if v.LoadBalancer != nil {
		down := s.TCPDown(info.Name)
		service.ServerStatus = serverStatus(v.Servers(), func(at gateway.TCPServer) (string, bool) {
			return at.Address, slices.Contains(down, at.Address)
		})
	}
	return service
}

// complete adds to a router what its entry points and the static configuration give it, as Traefik's
// API shows it.
func (s *Source) complete(r *Router, own *gateway.Observability) {
	if len(r.EntryPoints) == 0 {
		r.EntryPoints = s.Static.Default
	}
	r.RuleSyntax = cmp.Or(r.RuleSyntax, s.Static.RuleSyntax)
	var first gateway.EntryPoint
	for _, e := range s.Static.EntryPoints {
		if len(r.EntryPoints) > 0 && e.Name == r.EntryPoints[0] {
			first = e
		}
	}
	if r.TLS == nil {
		r.TLS = form(first.TLS)
	}
	r.Middlewares = slices.Concat(first.Middlewares, r.Middlewares)
	r.Observability = observability(own, first.Observability)
}

// udpService describes a UDP service. Its servers are not checked, so none is known to be down.
func udpService(info Info, v *gateway.UDPService) Service {
	if v == nil {
		return Service{Info: info}
	}
	service := Service{Info: info, LoadBalancer: form(v.LoadBalancer), Weighted: form(v.Weighted)}
	service.Type = service.kind()
	if v.LoadBalancer != nil {
		service.ServerStatus = serverStatus(v.Servers(), func(at gateway.UDPServer) (string, bool) {
			return at.Address, false
		})
	}
	return service
}

// serverStatus returns which servers are up, by the names that the function returns.
func serverStatus[S any](servers []S, down func(S) (name string, down bool)) map[string]string {
	all := map[string]string{}
	for _, s := range servers {
		if name, down := down(s); down {
			all[name] = "DOWN"
		} else {
			all[name] = "UP"
		}
	}
	return all
}

// kind returns the type of a service, in Traefik's words.
func (s *Service) kind() string {
	switch {
	case s.LoadBalancer != nil:
		return "loadbalancer"
	case s.Weighted != nil:
		return "weighted"
	case s.Mirroring != nil:
		return "mirroring"
	case s.Failover != nil:
		return "failover"
	case s.HighestRandomWeight != nil:
		return "highestrandomweight"
	}
	return ""
}

// middleware describes a middleware for HTTP or TCP.
func middleware[T any](info Info, v *T) Middleware {
	m := Middleware{Info: info, Value: map[string]any{}}
	if v != nil {
		addFields(m.Value, reflect.ValueOf(v).Elem())
		written(m.Value, info.Provider)
	}
	for key := range m.Value {
		m.Type = strings.ToLower(key)
	}
	return m
}

// link adds to services and middlewares by which routers they are used.
func link(routers map[string]Router, services map[string]Service, middlewares map[string]Middleware) {
	for name, r := range routers {
		if s, ok := services[r.Service]; ok {
			s.UsedBy = append(s.UsedBy, name)
			services[r.Service] = s
		}
		for _, used := range r.Middlewares {
			if m, ok := middlewares[used]; ok {
				m.UsedBy = append(m.UsedBy, name)
				middlewares[used] = m
			}
		}
	}
	for _, s := range services {
		slices.Sort(s.UsedBy)
	}
	for _, m := range middlewares {
		slices.Sort(m.UsedBy)
	}
}

// observability returns what is recorded of a router's requests: its own settings, those of the entry
// point, and Traefik's defaults.
func observability(own, entry *gateway.Observability) any {
	all := map[string]any{"accessLogs": true, "metrics": true, "tracing": true, "traceVerbosity": "minimal"}
	for _, o := range []*gateway.Observability{entry, own} {
		if set, ok := form(o).(map[string]any); ok {
			maps.Copy(all, set)
		}
	}
	return all
}
