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

// NewPlaces returns the function that counts connections to the API, with the limits of nodes and of
// other hosts.
func NewPlaces(isNode func(netip.Addr) bool) func(netip.Addr) (leave func(), ok bool) {
	return newBounds(isNode).enter
}
