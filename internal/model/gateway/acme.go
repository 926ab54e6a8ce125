package gateway

import "time"

// ACME is what the process that obtains certificates by ACME (RFC 8555) adds to a
// configuration, beside the certificates themselves. No file and no label sets it.
type ACME struct {
	// Tokens are the key authorizations of HTTP-01 challenges by token (RFC 8555, 8.3).
	Tokens map[string]string
	// Challenges are the certificates of TLS-ALPN-01 challenges by name (RFC 8737, 3).
	Challenges map[string]Certificate
	// Certificates has the state of each certificate that routers ask a resolver for.
	Certificates []CertificateState
}

// The states of a certificate from a resolver.
const (
	CertificateValid     = "valid"
	CertificatePending   = "pending"
	CertificateObtaining = "obtaining"
	CertificateFailed    = "failed"
	CertificateMissing   = "missing"
)

// CertificateState is the state of a certificate that routers ask a resolver for.
type CertificateState struct {
	// Names are those that it is for, the main one first.
	Names    []string `json:"names"`
	Resolver string   `json:"resolver,omitempty"`
	// Routers are the qualified names of the routers that ask for it.
	Routers []string `json:"routers,omitempty"`
	// State is "valid", "pending" before the first attempt, "obtaining" during an attempt
	// without a valid certificate, "failed", or "missing" if no router asks a resolver for it.
	State string `json:"state"`
	// Reason says why the last attempt has failed. The certificate can be in use nevertheless.
	Reason string `json:"reason,omitempty"`
	// Failures is the number of failed attempts since the last success.
	Failures int `json:"failures,omitempty"`
	// NotAfter is the end of the certificate in use. It is zero without one.
	NotAfter time.Time `json:"notAfter,omitzero"`
	// Next is the time of the next attempt or renewal. It is zero if there is none before
	// the settings change.
	Next time.Time `json:"next,omitzero"`
}

// String says what the resolver has done, and when it tries again.
func (c CertificateState) String() string {
	if c.Resolver == "" {
		return c.Reason
	}
	text := "resolver " + c.Resolver + ": " + c.State
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	if !c.Next.IsZero() {
		text += ", next attempt at " + c.Next.UTC().Format(time.DateTime)
	}
	return text
}

// StorageCluster is the storage of a resolver whose certificates the hosts of a cluster share.
const StorageCluster = "cluster"

// Challenge is what the gateways of a cluster answer to an authority: the key authorization of an
// HTTP-01 challenge by its token, or the certificate of a TLS-ALPN-01 challenge by its name.
type Challenge struct {
	Token            string      `json:"token,omitempty"`
	KeyAuthorization string      `json:"keyAuthorization,omitempty"`
	Name             string      `json:"name,omitempty"`
	Certificate      Certificate `json:"certificate,omitzero"`
}

// Busy is the error of a lock that the gateway of another host has.
type Busy struct {
	// Host is its name.
	Host string
}

// Error implements error.
func (b Busy) Error() string { return b.Host + " obtains it" }
