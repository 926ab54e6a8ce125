package gateway

import "time"

// TCP has the routers of connections and what they use.
type TCP struct {
	Routers           map[string]*TCPRouter
	Services          map[string]*TCPService
	Middlewares       map[string]*TCPMiddleware
	ServersTransports map[string]*TCPServersTransport
}

// TCPRouter sends the connections that match its rule to a service.
type TCPRouter struct {
	EntryPoints []string
	Middlewares []string `refers:"TCP middleware"`
	Service     string   `refers:"TCP service"`
	Rule        string
	RuleSyntax  string
	// Priority 0 means the length of the rule, and -1 for HostSNI(`*`).
	Priority int
	TLS      *TCPRouterTLS
}

// TCPRouterTLS says how a router's connections use TLS.
type TCPRouterTLS struct {
	RouterTLS
	// Passthrough leaves TLS to the server.
	Passthrough bool
}

// TCPService is one of its fields: the others are nil.
type TCPService struct {
	LoadBalancer *TCPLoadBalancer
	Weighted     *TCPWeighted
}

// TCPLoadBalancer divides connections between servers.
type TCPLoadBalancer struct {
	Servers          []TCPServer
	ServersTransport string `refers:"TCP transport"`
	// ProxyProtocol and TerminationDelay (in milliseconds) are v2's places of the
	// transport's settings.
	ProxyProtocol    *ProxyProtocol
	TerminationDelay *int
	HealthCheck      *TCPHealthCheck
}

// TCPServer is a server: files give Address, HOST:PORT, labels give Port.
type TCPServer struct {
	Address string
	Port    string
	TLS     bool
	// Label, Name and Network select containers. Each one is a server at Port.
	Label, Name, Network string `declared:"only"`
}

// ProxyProtocol sends the client's address in front of a connection's data.
type ProxyProtocol struct {
	// Version is 1 or 2, by default 2.
	Version int
}

// TCPHealthCheck connects to each server, sends a text and expects another.
type TCPHealthCheck struct {
	Port int
	// Send may contain a password.
	Send                                 string `secret:"whole"`
	Expect                               string
	Interval, UnhealthyInterval, Timeout time.Duration
}

// TCPWeighted divides connections between services.
type TCPWeighted struct {
	Services    []WeightedService `refers:"TCP service"`
	HealthCheck *struct{}
}

// TCPMiddleware is one of its fields: the others are nil.
type TCPMiddleware struct {
	InFlightConn *InFlightConn
	IPAllowList  *TCPIPAllowList
	IPWhiteList  *TCPIPAllowList
}

// InFlightConn limits the connections of a client's address at the same time.
type InFlightConn struct {
	Amount int64
}

// TCPIPAllowList accepts clients of these prefixes only.
type TCPIPAllowList struct {
	SourceRange []string
}

// UDP has the routers of datagrams and their services.
type UDP struct {
	Routers  map[string]*UDPRouter
	Services map[string]*UDPService
}

// UDPRouter sends the datagrams of entry points to a service.
type UDPRouter struct {
	EntryPoints []string
	Service     string `refers:"UDP service"`
}

// UDPService is one of its fields: the other is nil.
type UDPService struct {
	LoadBalancer *UDPLoadBalancer
	Weighted     *UDPWeighted
}

// UDPLoadBalancer divides clients between servers.
type UDPLoadBalancer struct {
	Servers []UDPServer
}

// UDPServer is a server: files give Address, HOST:PORT, labels give Port.
type UDPServer struct {
	Address string
	Port    string
	// Label, Name and Network select containers. Each one is a server at Port.
	Label, Name, Network string `declared:"only"`
}

// UDPWeighted divides clients between services.
type UDPWeighted struct {
	Services []WeightedService `refers:"UDP service"`
}
