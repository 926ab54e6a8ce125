package view

import (
	"cmp"
	"strings"
	"time"

	"fairlead/internal/model/gateway"
)

// Static is what the API shows of a gateway besides its configuration.
type Static struct {
	*gateway.Static
	// Began is when the gateway began.
	Began time.Time
}

// Overview counts the objects.
type Overview struct {
	HTTP      Protocol `json:"http"`
	TCP       Protocol `json:"tcp"`
	UDP       Protocol `json:"udp"`
	Features  Features `json:"features"`
	Providers []string `json:"providers,omitempty"`
}

// Protocol counts the objects for one protocol. UDP has no middlewares.
type Protocol struct {
	Routers     *Count `json:"routers,omitempty"`
	Services    *Count `json:"services,omitempty"`
	Middlewares *Count `json:"middlewares,omitempty"`
}

// Count counts the objects of one kind by their states.
type Count struct {
	Total    int `json:"total"`
	Warnings int `json:"warnings"`
	Errors   int `json:"errors"`
}

// Features says what the gateway records.
type Features struct {
	Tracing   string `json:"tracing"`
	Metrics   string `json:"metrics"`
	AccessLog bool   `json:"accessLog"`
}

// OverviewOf counts the objects.
func OverviewOf(static Static, d RawData) Overview {
	o := Overview{HTTP: Protocol{count(d.Routers), count(d.Services), count(d.Middlewares)},
		TCP:      Protocol{count(d.TCPRouters), count(d.TCPServices), count(d.TCPMiddlewares)},
		UDP:      Protocol{Routers: count(d.UDPRouters), Services: count(d.UDPServices)},
		Features: Features{AccessLog: static.AccessLog != nil}}
	if static.Metrics != nil {
		o.Features.Metrics = "Prometheus"
	}
	for name, settings := range static.Providers.All() {
		if settings != nil || d.has(strings.ToLower(name)) {
			o.Providers = append(o.Providers, name)
		}
	}
	return o
}

// has reports whether a router is of the provider. The process that serves clients does not
// know the settings of providers.
func (d RawData) has(provider string) bool {
	for _, all := range []map[string]Router{d.Routers, d.TCPRouters, d.UDPRouters} {
		for _, r := range all {
			if r.Provider == provider {
				return true
			}
		}
	}
	return false
}

func count[T interface{ state() string }](all map[string]T) *Count {
	c := &Count{Total: len(all)}
	for _, o := range all {
		switch o.state() {
		case "warning":
			c.Warnings++
		case "disabled":
			c.Errors++
		}
	}
	return c
}

func (i Info) state() string { return i.Status }

// version answers /api/version. The keys are Traefik's.
func (s Static) version() any {
	return struct {
		Version   string
		Codename  string
		StartDate time.Time `json:"startDate"`
	}{"fairlead", "", s.Began}
}

// EntryPoint is an entry point in Traefik's form.
type EntryPoint struct {
	Name             string         `json:"name"`
	Address          string         `json:"address"`
	AsDefault        bool           `json:"asDefault,omitempty"`
	Transport        map[string]any `json:"transport"`
	ProxyProtocol    any            `json:"proxyProtocol,omitempty"`
	ForwardedHeaders any            `json:"forwardedHeaders"`
	HTTP             map[string]any `json:"http"`
	HTTP2            map[string]any `json:"http2"`
	HTTP3            any            `json:"http3,omitempty"`
	UDP              map[string]any `json:"udp"`
}

func (e EntryPoint) matches(search, _ string) bool {
	return strings.Contains(strings.ToLower(e.Name), strings.ToLower(search))
}

func (s Static) entryPoints() map[string]EntryPoint {
	all := map[string]EntryPoint{}
	for _, e := range s.EntryPoints {
		all[e.Name] = entryPoint(e)
	}
	return all
}

func entryPoint(e gateway.EntryPoint) EntryPoint {
	t := e.Timeouts.Limits(gateway.DefaultTimeLimits())
	shown := EntryPoint{Name: e.Name, Address: e.Address, AsDefault: e.AsDefault, HTTP3: form(e.HTTP3),
		Transport: map[string]any{
			"lifeCycle": map[string]any{"requestAcceptGraceTimeout": e.Timeouts.AcceptGrace.String(),
				"graceTimeOut": t.Grace.String()},
			"respondingTimeouts": map[string]any{"readTimeout": t.Read.String(), "writeTimeout": t.Write.String(),
				"idleTimeout": t.Idle.String()}},
		ForwardedHeaders: trusted(e.Insecure, e.TrustedProxies), HTTP: map[string]any{},
		HTTP2: map[string]any{"maxConcurrentStreams": cmp.Or(e.MaxConcurrentStreams, 250)},
		UDP:   map[string]any{"timeout": cmp.Or(e.UDPTimeout, 3*time.Second).String()}}
	if e.ProxyProtocolInsecure || len(e.ProxyProtocol) > 0 {
		shown.ProxyProtocol = trusted(e.ProxyProtocolInsecure, e.ProxyProtocol)
	}
	if r := e.Redirect; r != nil {
		shown.HTTP["redirections"] = map[string]any{"entryPoint": form(r)}
	}
	if len(e.Middlewares) > 0 {
		shown.HTTP["middlewares"] = e.Middlewares
	}
	if e.TLS != nil {
		shown.HTTP["tls"] = form(e.TLS)
	}
	return shown
}

// trusted describes the peers whose claims about clients are believed.
func trusted(all bool, prefixes []string) map[string]any {
	shown := map[string]any{}
	if all {
		shown["insecure"] = true
	}
	if len(prefixes) > 0 {
		shown["trustedIPs"] = prefixes
	}
	return shown
}
