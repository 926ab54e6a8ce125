package metric

import (
	"crypto/tls"
	"net/http"
	"time"
)

// methods are the values of the label method. All other methods have the first value, so that
// clients cannot make one metric per invented method.
var methods = [...]string{"EXTENSION_METHOD", http.MethodGet, http.MethodPost, http.MethodHead, http.MethodPut,
	http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace}

// protocols are the values of the label protocol.
var protocols = [...]string{"http", "websocket", "sse"}

// Kind is the method and the protocol of a request, as indexes of methods and protocols.
type Kind struct{ method, protocol uint8 }

// Request is a request that has ended.
type Request struct {
	Kind
	Status int
	// TLS is nil without TLS.
	TLS *tls.ConnectionState
	// Service is the one that got the request last, empty if none did. ServiceTook is how long it
	// took.
	Service           string
	Took, ServiceTook time.Duration
	// Received and Sent are the sizes of the bodies in bytes.
	Received, Sent int64
	// Retries is how many times the request was sent again.
	Retries int
}

// KindOf returns the kind of the request.
func KindOf(r *http.Request) Kind {
	var k Kind
	for i, name := range methods {
		if name == r.Method {
			k.method = uint8(i)
			break
		}
	}
	switch {
	case r.Header.Get("Upgrade") != "":
		k.protocol = 1
	case r.Header.Get("Accept") == "text/event-stream":
		k.protocol = 2
	}
	return k
}

// class has all by which the requests of a Source differ in their labels.
type class struct {
	Kind
	status uint16
	// version and suite are those of TLS; version is 0 without TLS.
	version, suite uint16
	// service got the request last; in the counters of a router, it is the router's.
	service string
}

func classOf(r *Request) class {
	c := class{Kind: r.Kind, status: uint16(r.Status), service: r.Service}
	if r.TLS != nil {
		c.version, c.suite = r.TLS.Version, r.TLS.CipherSuite
	}
	return c
}

// TLSVersion returns a version of TLS as Traefik writes it, for example 1.3.
func TLSVersion(version uint16) string {
	switch version {
	case tls.VersionTLS10:
		return "1.0"
	case tls.VersionTLS11:
		return "1.1"
	case tls.VersionTLS12:
		return "1.2"
	case tls.VersionTLS13:
		return "1.3"
	}
	return "unknown"
}
