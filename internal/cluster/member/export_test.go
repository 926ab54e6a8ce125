package member

import (
	"crypto/tls"
	"net/netip"
)

// StoredCertificate returns the certificate in a node's directory, as someone has it who has stolen
// the directory.
func StoredCertificate(dir string) (tls.Certificate, error) {
	f, err := readFile(dir)
	return tls.Certificate{Certificate: [][]byte{f.Certificate}, PrivateKey: f.key}, err
}

// StoredMembership returns the membership in a node's directory.
func StoredMembership(dir string) (any, error) { return readFile(dir) }

// NewPlaces returns the function that counts connections to the API, with the limits of nodes and of
// other hosts. A connection that names a node has proved to be of it.
func NewPlaces(isNode func(netip.Addr) bool) func(a netip.Addr, node string, end func()) (leave func(), ok bool) {
	b := newBounds(isNode, func(string) string { return "" })
	return func(a netip.Addr, node string, end func()) (func(), bool) {
		p, ok := b.enter(a, nil, end)
		if ok && node != "" {
			ok = b.proved(p, node)
		}
		return func() { b.leave(p) }, ok
	}
}

// ServerName returns the server name of the ClientHello with which a connection begins.
func ServerName(first []byte) string { return serverName(first) }
