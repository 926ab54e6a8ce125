package traefik

import "fairlead/internal/model/gateway"

// visitor is called with each reference of an object: the kind and the name of the object that it
// means. It may change the name.
type visitor func(kind string, name *string)

func (v visitor) all(kind string, names []string) {
	for i := range names {
		v(kind, &names[i])
	}
}

func (v visitor) weighted(kind string, services []gateway.WeightedService) {
	for i := range services {
		v(kind, &services[i].Name)
	}
}

func referRouter(r *gateway.Router, v visitor) {
	v.all(middleware, r.Middlewares)
	v(service, &r.Service)
	if r.TLS != nil {
		v(tlsOptions, &r.TLS.Options)
	}
}

func referMiddleware(m *gateway.Middleware, v visitor) {
	gateway.Texts(m, "refers", func(t gateway.Text) { v(t.Tag, t.Value) })
}

func referService(s *gateway.Service, v visitor) {
	v.all(middleware, s.Middlewares)
	if s.LoadBalancer != nil {
		v(transport, &s.LoadBalancer.ServersTransport)
	}
	for _, w := range []*gateway.Weighted{s.Weighted, s.HighestRandomWeight} {
		if w != nil {
			v.weighted(service, w.Services)
		}
	}
	if s.Mirroring != nil {
		v(service, &s.Mirroring.Service)
		for i := range s.Mirroring.Mirrors {
			v(service, &s.Mirroring.Mirrors[i].Name)
		}
	}
	if s.Failover != nil {
		v(service, &s.Failover.Service)
		v(service, &s.Failover.Fallback)
	}
}

func referTCPRouter(r *gateway.TCPRouter, v visitor) {
	v.all(tcpMiddleware, r.Middlewares)
	v(tcpService, &r.Service)
	if r.TLS != nil {
		v(tlsOptions, &r.TLS.Options)
	}
}

func referTCPService(s *gateway.TCPService, v visitor) {
	if s.LoadBalancer != nil {
		v(tcpTransport, &s.LoadBalancer.ServersTransport)
	}
	if s.Weighted != nil {
		v.weighted(tcpService, s.Weighted.Services)
	}
}

func referUDPRouter(r *gateway.UDPRouter, v visitor) { v(udpService, &r.Service) }

func referUDPService(s *gateway.UDPService, v visitor) {
	if s.Weighted != nil {
		v.weighted(udpService, s.Weighted.Services)
	}
}
