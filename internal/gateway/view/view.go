// Package view makes what the gateway's API and commands show of a configuration, with the
// paths and keys of Traefik's API (https://doc.traefik.io/traefik/operations/api/).
package view

import (
	"encoding/json"

	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/status"
)

// RawData has all objects with their states, by name.
type RawData struct {
	Routers        map[string]Router     `json:"routers,omitempty"`
	Middlewares    map[string]Middleware `json:"middlewares,omitempty"`
	Services       map[string]Service    `json:"services,omitempty"`
	TCPRouters     map[string]Router     `json:"tcpRouters,omitempty"`
	TCPMiddlewares map[string]Middleware `json:"tcpMiddlewares,omitempty"`
	TCPServices    map[string]Service    `json:"tcpServices,omitempty"`
	UDPRouters     map[string]Router     `json:"udpRouters,omitempty"`
	UDPServices    map[string]Service    `json:"udpServices,omitempty"`
	// Certificates are those in use, and those that resolvers try to obtain. Traefik's API
	// has none.
	Certificates []shown.Certificate `json:"certificates,omitempty"`
	// Sources are the files, containers and engines with a problem that concerns all of their objects, by
	// path or name. Traefik's API has none.
	Sources map[string]SourceState `json:"sources,omitempty"`
}

// ParamWrong asks the daemon's gateway for Wrong only.
const ParamWrong = "wrong"

// Wrong returns the routers that are not enabled or have an error, the sources with a problem, and all certificates.
func (d RawData) Wrong() RawData {
	return RawData{Routers: wrong(d.Routers), TCPRouters: wrong(d.TCPRouters), UDPRouters: wrong(d.UDPRouters),
		Certificates: d.Certificates, Sources: d.Sources}
}

func wrong(all map[string]Router) map[string]Router {
	some := map[string]Router{}
	for name, r := range all {
		if r.Status != string(status.Enabled) || len(r.Errors) > 0 {
			some[name] = r
		}
	}
	return some
}

// SourceState is a source with a problem. Status is "warning" if its last good configuration is in use,
// and "disabled" if none is.
type SourceState struct {
	Status string   `json:"status"`
	Errors []string `json:"error"`
}

// Info is what all objects have.
type Info struct {
	Name     string `json:"name"`
	Provider string `json:"provider"`
	// Status is "enabled", "warning" or "disabled"; Errors say why.
	Status string   `json:"status"`
	Errors []string `json:"error,omitempty"`
}

// Router is a router for HTTP, TCP or UDP.
type Router struct {
	Info
	EntryPoints []string `json:"entryPoints,omitempty"`
	Middlewares []string `json:"middlewares,omitempty"`
	Service     string   `json:"service,omitempty"`
	Rule        string   `json:"rule,omitempty"`
	RuleSyntax  string   `json:"ruleSyntax,omitempty"`
	Priority    int      `json:"priority,omitempty"`
	// TLS has the form of Traefik's files.
	TLS any `json:"tls,omitempty"`
	// Observability has the form of Traefik's files. Only routers for HTTP have it.
	Observability any `json:"observability,omitempty"`
	// Using are the entry points where the router is in use.
	Using []string `json:"using,omitempty"`
}

// Service is a service for HTTP, TCP or UDP. One of its values is set, in the form of
// Traefik's files.
type Service struct {
	Info
	Type         string `json:"type,omitempty"`
	LoadBalancer any    `json:"loadBalancer,omitempty"`
	Weighted     any    `json:"weighted,omitempty"`
	Mirroring    any    `json:"mirroring,omitempty"`
	Failover     any    `json:"failover,omitempty"`
	// HighestRandomWeight divides clients by their addresses.
	HighestRandomWeight any `json:"highestRandomWeight,omitempty"`
	// ServerStatus is UP or DOWN, by URL or address.
	ServerStatus map[string]string `json:"serverStatus,omitempty"`
	// LastFailures are why and when servers have not answered a request last, by URL. Traefik's API has
	// none.
	LastFailures map[string]shown.Failure `json:"lastFailures,omitempty"`
	// UsedBy are the routers of the service.
	UsedBy []string `json:"usedBy,omitempty"`
}

// Middleware is a middleware for HTTP or TCP.
type Middleware struct {
	Info
	Type   string   `json:"type,omitempty"`
	UsedBy []string `json:"usedBy,omitempty"`
	// Value has one key, such as "rateLimit", whose value has the form of Traefik's files.
	Value map[string]any `json:"-"`
}

// plainMiddleware has the fields of Middleware with Go's encoding.
type plainMiddleware Middleware

// MarshalJSON implements json.Marshaler: the value's key is beside the others.
func (m Middleware) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(plainMiddleware(m))
	if err != nil || len(m.Value) == 0 {
		return text, err
	}
	value, err := json.Marshal(m.Value)
	if err != nil {
		return nil, err
	}
	return append(append(text[:len(text)-1], ','), value[1:]...), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Middleware) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, (*plainMiddleware)(m)); err != nil {
		return err
	}
	m.Value = map[string]any{}
	if err := json.Unmarshal(text, &m.Value); err != nil {
		return err
	}
	for _, known := range []string{"name", "provider", "status", "error", "type", "usedBy"} {
		delete(m.Value, known)
	}
	return nil
}
