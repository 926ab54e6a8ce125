// Package shown has what people see of a gateway: what happens to a request, and certificates.
package shown

import (
	"crypto/x509"
	"fmt"
	"time"

	"fairlead/internal/model/gateway"
)

// Answer says what happens to a request: which router it takes, or why none.
type Answer struct {
	// EntryPoint and Address are of the entry point that the request arrives at. They are
	// empty if several come into question.
	EntryPoint string `json:"entryPoint,omitempty"`
	Address    string `json:"address,omitempty"`
	// Certificate is what a client of https gets.
	Certificate *Certificate `json:"certificate,omitempty"`
	// Router and Service are empty if no router matches.
	Router      string   `json:"router,omitempty"`
	Rule        string   `json:"rule,omitempty"`
	Service     string   `json:"service,omitempty"`
	Middlewares []string `json:"middlewares,omitempty"`
	// Servers are those of the service, with their states.
	Servers []ServerState `json:"servers,omitempty"`
	// Problems say why no server answers, or what a client does not accept.
	Problems []string `json:"problems,omitempty"`
	// Nearest are routers that almost match.
	Nearest []Nearest `json:"nearest,omitempty"`
}

// ServerState is a server of a service.
type ServerState struct {
	URL string `json:"url"`
	// State is "up", "draining" or "down". Reason says why it is not up, if that is known.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// LastFailure is that of the last request that failed by the server's fault, also if it is up.
	LastFailure *Failure `json:"lastFailure,omitempty"`
}

// Failure is why and when a server has not answered a request.
type Failure struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// Since returns the failure with its age.
func (f Failure) Since(now time.Time) string {
	return fmt.Sprintf("last failure %s ago: %s", max(now.Sub(f.At), 0).Round(time.Second), f.Text)
}

// Nearest is a router that the request does not take, and why.
type Nearest struct {
	Router string   `json:"router"`
	Why    []string `json:"why"`
}

// Certificate is a certificate in use.
type Certificate struct {
	Names     []string  `json:"names"`
	Issuer    string    `json:"issuer,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	// Default says that clients get it for names that no other certificate has.
	Default bool `json:"default,omitempty"`
	// ACME is the state at the resolver that obtains it. The dates are zero while there is none.
	ACME *gateway.CertificateState `json:"acme,omitempty"`
}

// Of returns what is shown of a certificate for these names.
func Of(c *x509.Certificate, names []string) Certificate {
	return Certificate{Names: names, Issuer: c.Issuer.String(), NotBefore: c.NotBefore, NotAfter: c.NotAfter}
}

// Problems returns why a client does not accept the certificate for a name. whyNone says why the
// name has no certificate of its own.
func (c Certificate) Problems(name, whyNone string, now time.Time) []string {
	switch {
	case c.Default:
		return []string{"no certificate has the name " + name + ": clients get the default one and refuse it" + whyNone}
	case now.After(c.NotAfter):
		return []string{"the certificate has expired: clients refuse it"}
	case now.Before(c.NotBefore):
		return []string{"the certificate is not valid yet: clients refuse it"}
	}
	return nil
}
