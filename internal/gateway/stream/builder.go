package stream

import (
	"crypto/tls"
	"log/slog"

	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/status"
	"fairlead/internal/model/gateway"
)

// The kinds of objects, as front ends name them too.
const (
	RouterKind     = "TCP router"
	ServiceKind    = "TCP service"
	MiddlewareKind = "TCP middleware"
	TransportKind  = "TCP transport"
)

// Source is what routers are built from.
type Source struct {
	Static *gateway.Static
	Config *gateway.Config
	Status *status.Table
	Log    *slog.Logger
	// Options are the TLS options by qualified name.
	Options map[string]*tls.Config
	// ServerTLS returns the parameters of TLS to servers.
	ServerTLS func(*gateway.ServerTLS) (*tls.Config, error)
	// HTTPS calls add with the entry point and the names of each HTTPS router.
	HTTPS func(add func(entry string, names []string))
	// Weaker returns the name of the options of HTTPS connections for a name if they are not as
	// strict as the others, else an empty text.
	Weaker func(entry, name, options string) string
}

// builder makes the routers of one configuration.
type builder struct {
	Source
	now, next *Use
	services  map[string]Handler
	building  map[string]bool
	entries   map[string]*entryRouters
	https     map[string]*httpsNames
}

// entryRouters are the routers of an entry point without and with TLS.
type entryRouters struct {
	plain, tls []*route.Router
	targets    map[string]*target
}
