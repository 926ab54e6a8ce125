// Package transport sends requests to the servers of HTTP services.
//
// It does not choose a server, and does not answer for one that fails: load balancers do. Without TLS, package h1
// forwards (direct.go); with TLS and for HTTP/2, net/http does (library.go).
package transport

import (
	"net/http"
	"net/url"
	"time"

	"fairlead/internal/model/gateway"
)

// Forwarder sends requests to one server.
type Forwarder interface {
	// Forward sends the request, whose headers are prepared, and writes the response.
	Forward(w http.ResponseWriter, r *http.Request, host string) error
	Close()
}

// New returns the forwarder to the server. The direct one needs no interval: it sends on what it has
// before it waits for the server.
func New(to *url.URL, t *gateway.ServersTransport, flush time.Duration) (Forwarder, error) {
	if to.Scheme == "http" {
		return newDirect(to, t), nil
	}
	return newLibrary(to, t, flush)
}
