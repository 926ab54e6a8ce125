package stream

import (
	"crypto/tls"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/gateway/opening"
	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/rule"
	"fairlead/internal/gateway/tlsconfig"
	"fairlead/internal/model/gateway"
)

// Routes are the TCP routers of one entry point: those of connections without TLS, and
// those with.
type Routes struct {
	plain, tls routeList
	// https has the names of HTTPS routers, *.NAME for wildcards.
	https *httpsNames
	// challenges are the names that an authority validates by TLS-ALPN (RFC 8737).
	challenges map[string]gateway.Certificate
}

// routeList has routers by name, and finds that of a connection.
type routeList struct {
	table   *route.Table
	targets map[string]*target
}

// target serves the connections of a TCP router.
type target struct {
	handler Handler
	// config terminates TLS. If nil, the server does, or there is none.
	config *tls.Config
	// all says that the rule is HostSNI(`*`).
	all bool
}

// httpsNames are the names of the HTTPS routers of an entry point.
type httpsNames struct {
	names map[string]bool
	// others says that there are HTTPS routers for other names.
	others bool
}

// has reports whether HTTPS routers take the connections for the name or the wildcard.
func (h *httpsNames) has(name string) bool {
	if h == nil {
		return false
	}
	_, parent, ok := strings.Cut(name, ".")
	return h.names[name] || ok && h.names["*."+parent]
}

func (l routeList) empty() bool { return len(l.targets) == 0 }

func (l routeList) find(client netip.Addr, hello opening.Hello) *target {
	if l.empty() {
		return nil
	}
	r := l.table.Find(&rule.Request{Host: hello.ServerName, Client: client, ALPN: hello.Protocols})
	if r == nil {
		return nil
	}
	return l.targets[r.Name]
}

// atOnce reports whether connections are divided before the client has sent anything, so that
// servers may speak first: nothing but TCP routers without TLS can take them.
func (s *Routes) atOnce() bool {
	return !s.plain.empty() && s.tls.empty() && s.https == nil
}

// validates reports whether the client is an authority that validates a name of the gateway. No
// router may take it. Authorities that validate names of servers take the routers.
func (s *Routes) validates(hello opening.Hello) bool {
	_, ok := s.challenges[hello.ServerName]
	return ok && slices.Equal(hello.Protocols, []string{tlsconfig.ChallengeProtocol})
}

// secure returns the router of a client with TLS, nil if HTTPS routers take it. HTTPS routers
// for the name come first, then TCP routers for it, then HTTPS routers for all names, then TCP
// routers for all names.
func (s *Routes) secure(client netip.Addr, hello opening.Hello) *target {
	if s.validates(hello) || s.https.has(hello.ServerName) {
		return nil
	}
	r := s.tls.find(client, hello)
	if r != nil && r.all && s.https != nil && s.https.others {
		return nil
	}
	return r
}
