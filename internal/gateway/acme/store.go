package acme

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"

	"fairlead/internal/model/gateway"

	"github.com/caddyserver/certmagic"
)

// The kinds of values in the storage.
const (
	accountKind     = "account"
	certificateKind = "certificates"
	attemptKind     = "attempts"
)

// stored is a certificate in Traefik's form.
type stored struct {
	Domain      storedDomain `json:"domain"`
	Certificate []byte       `json:"certificate"`
	Key         []byte       `json:"key"`
	Store       string       `json:"Store"`
	// CAServer is the authority's directory. Traefik does not have it.
	CAServer string `json:"caServer,omitempty"`
}

type storedDomain struct {
	Main string   `json:"main"`
	SANs []string `json:"sans,omitempty"`
}

// letsEncrypt is the default authority.
const letsEncrypt = "https://acme-v02.api.letsencrypt.org/directory"

func (s stored) names() []string {
	return gateway.Domain{Main: s.Domain.Main, SANs: s.Domain.SANs}.Names()
}

func (s stored) id() string { return idOf(s.names()) }

// idOf returns the last part of the keys of a certificate.
func idOf(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	sum := sha256.Sum256([]byte(setOf(names)))
	return strings.ReplaceAll(names[0], "*", "wildcard") + "-" + hex.EncodeToString(sum[:6])
}

// held is a certificate that can be used.
type held struct {
	stored
	leaf *x509.Certificate
}

// hold parses a stored certificate.
func hold(s stored) (*held, error) {
	pair, err := tls.X509KeyPair(s.Certificate, s.Key)
	if err != nil {
		return nil, fmt.Errorf("the stored certificate for %s: %w", strings.Join(s.names(), ", "), err)
	}
	return &held{s, pair.Leaf}, nil
}

// isValidFor reports whether the certificate is valid for all names.
func (h *held) isValidFor(names []string) bool {
	own := map[string]bool{}
	for _, name := range h.leaf.DNSNames {
		own[name] = true
	}
	for _, ip := range h.leaf.IPAddresses {
		own[ip.String()] = true
	}
	return !slices.ContainsFunc(names, func(name string) bool { return !covers(own, name) })
}

// isFrom reports whether the certificate is from the authority. Traefik does not store that:
// its certificates from Let's Encrypt's staging environment have it in their issuer's name.
func (h *held) isFrom(caServer string) bool {
	if h.CAServer != "" {
		return h.CAServer == caServer
	}
	staging := strings.HasPrefix(h.leaf.Issuer.CommonName, "(STAGING)") ||
		slices.ContainsFunc(h.leaf.Issuer.Organization,
			func(name string) bool { return strings.HasPrefix(name, "(STAGING)") })
	return !staging || caServer != letsEncrypt
}

// store has the values of one resolver.
type store struct {
	certmagic.Storage
	resolver string
}

func (s store) key(parts ...string) string {
	return strings.Join(append([]string{url.PathEscape(s.resolver)}, parts...), "/")
}

// load reads a value. It reports whether there is one.
func (s store) load(ctx context.Context, value any, parts ...string) (bool, error) {
	text, err := s.Load(ctx, s.key(parts...))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, value)
	}
	if err != nil {
		return false, fmt.Errorf("read %s from the storage: %w", strings.Join(parts, "/"), err)
	}
	return true, nil
}

func (s store) save(ctx context.Context, value any, parts ...string) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return s.Store(ctx, s.key(parts...), text)
}

// certificates reads all certificates. It returns what can be used, and the errors of others.
func (s store) certificates(ctx context.Context) (all []*held, errs []error) {
	keys, err := s.List(ctx, s.key(certificateKind), false)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, []error{err}
	}
	for _, key := range keys {
		var c stored
		if _, err := s.load(ctx, &c, strings.Split(key, "/")[1:]...); err != nil {
			errs = append(errs, err)
			continue
		}
		h, err := hold(c)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, h)
	}
	return all, errs
}

// storedAccount is an account in Traefik's form.
type storedAccount struct {
	Email        string
	Registration *registration
	// PrivateKey is an RSA key in PKCS #1.
	PrivateKey []byte
	KeyType    string
}

type registration struct {
	Body json.RawMessage `json:"body,omitempty"`
	URI  string          `json:"uri,omitempty"`
}

// key returns the account's key.
func (a storedAccount) key() (crypto.Signer, error) {
	if key, err := x509.ParsePKCS1PrivateKey(a.PrivateKey); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(a.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("the stored account's key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the stored account's key cannot sign")
	}
	return signer, nil
}
