package member

import "crypto/tls"

// StoredCertificate returns the certificate in a node's directory, as someone has it who has stolen
// the directory.
func StoredCertificate(dir string) (tls.Certificate, error) {
	f, err := readFile(dir)
	return tls.Certificate{Certificate: [][]byte{f.Certificate}, PrivateKey: f.key}, err
}
