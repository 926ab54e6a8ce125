package model

import (
	"maps"
	"reflect"
	"slices"

	"fairlead/internal/model/gateway"
)

// Gateway is the HTTP gateway that files declare for a host. Its names are as the files
// have them, without a provider. Nothing changes the values of a Gateway that is part of
// a desired state.
type Gateway struct {
	Static gateway.Static `json:"static,omitzero"`
	Config gateway.Config `json:"config,omitzero"`
	// Origin is the set of files that declares it. A host has one gateway, and only this
	// set may change or remove it.
	Origin Origin `json:"origin,omitempty"`
	// Cluster has the objects of the cluster. Files do not declare it: the daemon adds it to what runs.
	Cluster *ClusterGateway `json:"-"`
}

// ClusterGateway has the objects of the gateway that belong to the cluster: each host with a gateway
// serves them too. Nothing changes its values.
type ClusterGateway struct {
	// Config has the objects without a provider in their names. Servers that select sandboxes stand for
	// those of this host; the sandboxes of other hosts are servers with addresses.
	Config gateway.Config `json:"config,omitzero"`
	// Problems are those of objects, most of which Config does not have.
	Problems []GatewayProblem `json:"problems,omitempty"`
}

// GatewayProblem is why an object of the cluster cannot be used on this host, or not as declared.
type GatewayProblem struct {
	// Kind is that of a GatewayObject.
	Kind string `json:"kind"`
	Name string `json:"name"`
	Text string `json:"text"`
	// Warning means that the object is in use nevertheless.
	Warning bool `json:"warning,omitempty"`
}

// Equal reports whether both are equal. Either may be nil.
func (c *ClusterGateway) Equal(o *ClusterGateway) bool {
	return c == o || c != nil && o != nil && reflect.DeepEqual(c, o)
}

// Equal reports whether both gateways are equal. Either may be nil.
func (g *Gateway) Equal(o *Gateway) bool {
	return g == o || g != nil && o != nil && reflect.DeepEqual(g, o)
}

// GatewayObject is a part of a gateway that has a name: an entry point, a router …
type GatewayObject struct {
	// Kind is e.g. "router" or "TCP service". Section is its place in a file in lower
	// case, e.g. "http.routers".
	Kind, Section string
	// Name is the CertFile of a certificate.
	Name  string
	Value any
}

// Objects returns the objects of the gateway, kind by kind. The last one has no kind, the
// name "settings", and all other settings, if there are any. g may be nil.
func (g *Gateway) Objects() (all []GatewayObject) {
	if g == nil {
		return nil
	}
	for _, e := range g.Static.EntryPoints {
		all = append(all, GatewayObject{"entry point", "entrypoints", e.Name, e})
	}
	c := g.Config
	all = append(all, objects("router", "http.routers", c.HTTP.Routers)...)
	all = append(all, objects("middleware", "http.middlewares", c.HTTP.Middlewares)...)
	all = append(all, objects("service", "http.services", c.HTTP.Services)...)
	all = append(all, objects("transport", "http.serverstransports", c.HTTP.ServersTransports)...)
	all = append(all, objects("TCP router", "tcp.routers", c.TCP.Routers)...)
	all = append(all, objects("TCP middleware", "tcp.middlewares", c.TCP.Middlewares)...)
	all = append(all, objects("TCP service", "tcp.services", c.TCP.Services)...)
	all = append(all, objects("TCP transport", "tcp.serverstransports", c.TCP.ServersTransports)...)
	all = append(all, objects("UDP router", "udp.routers", c.UDP.Routers)...)
	all = append(all, objects("UDP service", "udp.services", c.UDP.Services)...)
	all = append(all, objects("TLS options", "tls.options", c.TLS.Options)...)
	all = append(all, objects("TLS store", "tls.stores", c.TLS.Stores)...)
	for _, cert := range c.TLS.Certificates {
		all = append(all, GatewayObject{"certificate", "tls.certificates", cert.CertFile, cert})
	}
	rest := g.Static
	rest.EntryPoints, rest.Default = nil, nil
	if reflect.ValueOf(rest).IsZero() {
		return all
	}
	return append(all, GatewayObject{"", "", "settings", rest})
}

func objects[T any](kind, section string, named map[string]*T) (all []GatewayObject) {
	for _, name := range slices.Sorted(maps.Keys(named)) {
		all = append(all, GatewayObject{kind, section, name, named[name]})
	}
	return all
}

// Equal reports whether both objects have the same settings.
func (o GatewayObject) Equal(other GatewayObject) bool {
	return reflect.DeepEqual(o.Value, other.Value)
}
