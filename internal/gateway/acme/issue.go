package acme

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"fairlead/internal/model/gateway"

	"github.com/mholt/acmez/v3"
	protocol "github.com/mholt/acmez/v3/acme"
)

// issue obtains a certificate from the authority. If it replaces one that the authority has
// issued, the request says so: authorities exempt renewals from their limits (RFC 9773, 5).
func (a *authority) issue(ctx context.Context, client *acmez.Client, names []string, old *held) (*held, error) {
	account, err := a.registered(ctx, client)
	if err != nil {
		return nil, err
	}
	key, err := a.newKey()
	if err != nil {
		return nil, err
	}
	request, err := acmez.NewCSR(key, names)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	order, err := acmez.OrderParametersFromCSR(account, request)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	order.Profile = a.value.Profile
	if directory, err := client.GetDirectory(ctx); err == nil && directory.RenewalInfo != "" && old != nil &&
		old.CAServer == a.value.CAServer {
		order.Replaces = old.leaf
	}
	chains, err := client.ObtainCertificate(ctx, order)
	if err != nil {
		if a.forget(ctx, err) {
			err = fmt.Errorf("%w: the next attempt registers a new account", err)
		}
		return nil, err
	}
	chain, err := preferred(chains, a.value.PreferredChain)
	if err != nil {
		return nil, err
	}
	private, err := keyPEM(key)
	if err != nil {
		return nil, err
	}
	return hold(stored{Domain: storedDomain{Main: names[0], SANs: names[1:]}, Certificate: chain, Key: private,
		Store: "default", CAServer: a.value.CAServer})
}

// preferred returns the chain with a certificate that was issued by the name, else the first.
func preferred(chains []protocol.Certificate, name string) ([]byte, error) {
	if len(chains) == 0 {
		return nil, errors.New("the authority has sent no certificate")
	}
	for _, chain := range chains {
		for rest := chain.ChainPEM; name != ""; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if c, err := x509.ParseCertificate(block.Bytes); err == nil && c.Issuer.CommonName == name {
				return chain.ChainPEM, nil
			}
		}
	}
	return chains[0].ChainPEM, nil
}

// keyPEM returns the key as Traefik writes it.
func keyPEM(key crypto.Signer) ([]byte, error) {
	if k, ok := key.(*rsa.PrivateKey); ok {
		return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)}), nil
	}
	der, err := x509.MarshalECPrivateKey(key.(*ecdsa.PrivateKey))
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

// challengeCertificate returns the certificate of a TLS-ALPN-01 challenge.
func challengeCertificate(c protocol.Challenge) (gateway.Certificate, error) {
	pair, err := acmez.TLSALPN01ChallengeCert(c)
	if err != nil {
		return gateway.Certificate{}, fmt.Errorf("make the challenge's certificate: %w", err)
	}
	key, err := keyPEM(pair.PrivateKey.(crypto.Signer))
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	return gateway.Certificate{CertFile: string(cert), KeyFile: string(key)}, err
}
