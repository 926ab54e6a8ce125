package gateway

import (
	"encoding/json"
	"net/http"
	"strings"

	"fairlead/internal/model/gateway"
)

// api returns the handler of the read-only API, whose paths and keys are Traefik's.
func (g *Gateway) api() http.Handler {
	mux := http.NewServeMux()
	show := func(pattern string, value func() any) {
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(value()) // the client may be gone
		})
	}
	show("/api/rawdata", func() any { return g.rawData() })
	show("/api/http/routers", func() any { return values(g.rawData().Routers) })
	show("/api/http/services", func() any { return values(g.rawData().Services) })
	show("/api/http/middlewares", func() any { return values(g.rawData().Middlewares) })
	show("/api/certificates", func() any { return g.rawData().Certificates })
	show("/api/entrypoints", func() any { return g.static.EntryPoints })
	mux.HandleFunc("GET /api/explain", g.serveExplain)
	show("/api/overview", func() any { return g.overview() })
	show("/api/version", func() any {
		return map[string]any{"Version": "fairlead", "Codename": "", "startDate": g.began}
	})
	return mux
}

// RawData has all objects with their states.
type RawData struct {
	Routers     map[string]RouterInfo     `json:"routers,omitempty"`
	Services    map[string]ServiceInfo    `json:"services,omitempty"`
	Middlewares map[string]MiddlewareInfo `json:"middlewares,omitempty"`
	// Certificates are those in use, and those that resolvers try to obtain.
	Certificates []ShownCertificate `json:"certificates,omitempty"`
}

// Info is what all objects have.
type Info struct {
	Name     string   `json:"name"`
	Provider string   `json:"provider"`
	Status   State    `json:"status"`
	Errors   []string `json:"error,omitempty"`
}

type RouterInfo struct {
	Info
	EntryPoints []string           `json:"entryPoints,omitempty"`
	Middlewares []string           `json:"middlewares,omitempty"`
	Service     string             `json:"service,omitempty"`
	Rule        string             `json:"rule,omitempty"`
	Priority    int                `json:"priority,omitempty"`
	TLS         *gateway.RouterTLS `json:"tls,omitempty"`
}

type ServiceInfo struct {
	Info
	LoadBalancer *gateway.LoadBalancer `json:"loadBalancer,omitempty"`
	ServerStatus map[string]string     `json:"serverStatus,omitempty"`
}

type MiddlewareInfo struct {
	Info
	Middleware *gateway.Middleware `json:"middleware,omitempty"`
}

// rawData returns the objects of the current snapshot.
func (g *Gateway) rawData() RawData {
	now, down := g.current.Load(), g.downServers()
	d := RawData{map[string]RouterInfo{}, map[string]ServiceInfo{}, map[string]MiddlewareInfo{},
		now.shownCertificates()}
	for _, s := range now.statuses {
		_, provider, _ := strings.Cut(s.Name, "@")
		common := Info{Name: s.Name, Provider: provider, Status: s.State, Errors: s.Reasons}
		switch s.Kind {
		case "router":
			r := RouterInfo{Info: common}
			if v := now.config.HTTP.Routers[s.Name]; v != nil {
				r.EntryPoints, r.Middlewares, r.Service = v.EntryPoints, v.Middlewares, v.Service
				r.Rule, r.Priority, r.TLS = v.Rule, v.Priority, v.TLS
			}
			d.Routers[s.Name] = r
		case "service":
			v := ServiceInfo{Info: common}
			if at := now.config.HTTP.Services[s.Name]; at != nil && at.LoadBalancer != nil {
				v.LoadBalancer, v.ServerStatus = at.LoadBalancer, serverStatus(at.LoadBalancer, down)
			}
			d.Services[s.Name] = v
		case "middleware":
			d.Middlewares[s.Name] = MiddlewareInfo{common, now.config.HTTP.Middlewares[s.Name]}
		}
	}
	return d
}

// serverStatus returns UP or DOWN by URL.
func serverStatus(value *gateway.LoadBalancer, down map[string]bool) map[string]string {
	all := map[string]string{}
	for _, server := range value.Servers {
		if all[server.URL] = "UP"; down[server.URL] || server.Down != "" {
			all[server.URL] = "DOWN"
		}
	}
	return all
}

// downServers returns the URLs of the servers that are down.
func (g *Gateway) downServers() map[string]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	down := map[string]bool{}
	for _, s := range g.running {
		if !s.isUp() {
			down[s.url.String()] = true
		}
	}
	return down
}

// overview counts the objects by state.
func (g *Gateway) overview() any {
	type count struct {
		Total    int `json:"total"`
		Warnings int `json:"warnings"`
		Errors   int `json:"errors"`
	}
	counts := map[string]*count{"routers": {}, "services": {}, "middlewares": {}}
	for _, s := range g.Status() {
		c := counts[s.Kind+"s"]
		if c == nil {
			continue
		}
		c.Total++
		switch s.State {
		case Warning:
			c.Warnings++
		case Disabled:
			c.Errors++
		}
	}
	return map[string]any{"http": counts}
}

func values[T any](all map[string]T) []T {
	list := make([]T, 0, len(all))
	for _, name := range SortedKeys(all) {
		list = append(list, all[name])
	}
	return list
}
