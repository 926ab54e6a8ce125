package acme

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"fairlead/internal/gateway/acme/dns"
	"fairlead/internal/model/gateway"

	"github.com/mholt/acmez/v3"
	protocol "github.com/mholt/acmez/v3/acme"
)

// authority is the server of a resolver.
type authority struct {
	value     gateway.Resolver
	store     store
	log       *slog.Logger
	transport *http.Transport
	newKey    func() (crypto.Signer, error)
	// replaceAccount registers another account if the stored one cannot be read.
	replaceAccount bool
	// account protects the account: one goroutine registers it.
	account sync.Mutex
}

// keyTypes are Traefik's. The default is EC256: a handshake with it costs the gateway a small
// part of one with RSA4096, Traefik's default.
var keyTypes = map[string]func() (crypto.Signer, error){
	"EC256":   func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) },
	"EC384":   func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P384(), rand.Reader) },
	"RSA2048": func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 2048) },
	"RSA3072": func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 3072) },
	"RSA4096": func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 4096) },
	"RSA8192": func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 8192) },
}

func newAuthority(value gateway.Resolver, s store, log *slog.Logger) (*authority, error) {
	value.CAServer = cmp.Or(value.CAServer, letsEncrypt)
	if u, err := url.Parse(value.CAServer); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("caServer %q: want the https URL of an ACME directory", value.CAServer)
	}
	newKey, err := keyType(value.KeyType)
	if err != nil {
		return nil, err
	}
	roots, err := rootsOf(value)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: 30 * time.Second}
	return &authority{value: value, store: s, log: log, newKey: newKey, transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 30 * time.Second, ResponseHeaderTimeout: 30 * time.Second, IdleConnTimeout: time.Minute,
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: cmp.Or(value.CAServerName,
			dns.Variable("LEGO_CA_SERVER_NAME"))},
	}}, nil
}

// rootsOf returns the certificates that the authority's server is verified with. Nil means
// the system's. The resolver's settings come before lego's variables.
func rootsOf(value gateway.Resolver) (*x509.CertPool, error) {
	files, system := value.CACertificates, value.CASystemCertPool
	if list := dns.Variable("LEGO_CA_CERTIFICATES"); len(files) == 0 && list != "" {
		files = strings.Split(list, string(os.PathListSeparator))
		system, _ = strconv.ParseBool(dns.Variable("LEGO_CA_SYSTEM_CERT_POOL"))
	}
	if len(files) == 0 {
		return nil, nil
	}
	roots := x509.NewCertPool()
	if system {
		all, err := x509.SystemCertPool()
		if err != nil {
			return nil, fmt.Errorf("read the system's certificates: %w", err)
		}
		roots = all
	}
	for _, file := range files {
		text := []byte(file)
		if !strings.Contains(file, "-----BEGIN") {
			var err error
			if text, err = os.ReadFile(file); err != nil {
				return nil, fmt.Errorf("read the authority's certificate: %w", err)
			}
		}
		if !roots.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("the authority's certificate %s has no PEM certificate", file)
		}
	}
	return roots, nil
}

// client returns a client for one attempt.
func (a *authority) client(limits *retryAfter) *acmez.Client {
	limits.next = a.transport
	return &acmez.Client{Client: &protocol.Client{Directory: a.value.CAServer, UserAgent: "fairlead",
		HTTPClient: &http.Client{Transport: limits, Timeout: time.Minute}, PollTimeout: 5 * time.Minute}}
}

// retryAfter remembers what the authority's server answers when it refuses a request for now.
type retryAfter struct {
	next http.RoundTripper
	mu   sync.Mutex
	wait time.Duration
}

// RoundTrip implements http.RoundTripper.
func (r *retryAfter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusTooManyRequests &&
		response.StatusCode != http.StatusServiceUnavailable {
		return response, err
	}
	value := response.Header.Get("Retry-After")
	wait := time.Duration(0)
	if seconds, err := strconv.Atoi(value); err == nil {
		wait = time.Duration(min(max(seconds, 0), int(longestWait/time.Second))) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = time.Until(at)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wait = max(r.wait, wait)
	return response, nil
}

func (r *retryAfter) get() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wait
}

// registered returns the resolver's account: the stored one, or a new one.
func (a *authority) registered(ctx context.Context, client *acmez.Client) (protocol.Account, error) {
	a.account.Lock()
	defer a.account.Unlock()
	if err := a.store.Lock(ctx, a.store.key(accountKind)); err != nil {
		return protocol.Account{}, err
	}
	defer func() { _ = a.store.Unlock(context.WithoutCancel(ctx), a.store.key(accountKind)) }()
	var s storedAccount
	ok, err := a.store.load(ctx, &s, accountKind)
	if err == nil && ok && a.isMine(s) {
		var key crypto.Signer
		if key, err = s.key(); err == nil {
			return protocol.Account{Status: protocol.StatusValid, Location: s.Registration.URI, PrivateKey: key}, nil
		}
	}
	if err != nil && !a.replaceAccount {
		return protocol.Account{}, err
	}
	if err != nil {
		a.log.Warn("the stored account cannot be used: another one is registered", "resolver", a.store.resolver,
			"error", err)
	}
	return a.register(ctx, client)
}

// isMine reports whether the account is one of the authority with the resolver's e-mail.
func (a *authority) isMine(s storedAccount) bool {
	if s.Registration == nil || s.Email != a.value.Email {
		return false
	}
	own, err := url.Parse(s.Registration.URI)
	server, errServer := url.Parse(a.value.CAServer)
	return err == nil && errServer == nil && own.Host == server.Host
}

// saveLimit limits how long a new account waits for the storage when the gateway stops.
const saveLimit = 5 * time.Second

// register makes an account at the authority. Its key is RSA, because Traefik reads no other.
func (a *authority) register(ctx context.Context, client *acmez.Client) (protocol.Account, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return protocol.Account{}, err
	}
	account := protocol.Account{TermsOfServiceAgreed: true, PrivateKey: key}
	if a.value.Email != "" {
		account.Contact = []string{"mailto:" + a.value.Email}
	}
	if e := a.value.EAB; e != nil {
		bound := protocol.EAB{KeyID: e.KID, MACKey: strings.TrimRight(e.HMACEncoded, "=")}
		if err := account.SetExternalAccountBinding(ctx, client.Client, bound); err != nil {
			return account, fmt.Errorf("bind the account (eab): %w", err)
		}
	}
	if account, err = client.NewAccount(ctx, account); err != nil {
		return account, fmt.Errorf("register an account: %w", err)
	}
	body, err := json.Marshal(account)
	if err != nil {
		return account, err
	}
	a.log.Info("registered an account", "resolver", a.store.resolver, "authority", a.value.CAServer)
	saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveLimit) // the authority has it already
	defer cancel()
	return account, a.store.save(saving, storedAccount{Email: a.value.Email,
		PrivateKey:   x509.MarshalPKCS1PrivateKey(key),
		Registration: &registration{Body: body, URI: account.Location}, KeyType: "4096"}, accountKind)
}

// forget removes the account if the authority does not know it: its server may be a new one.
func (a *authority) forget(ctx context.Context, err error) bool {
	var problem protocol.Problem
	if !errors.As(err, &problem) || problem.Type != protocol.ProblemTypeAccountDoesNotExist {
		return false
	}
	key := a.store.key(accountKind)
	if a.store.Lock(ctx, key) != nil {
		return false
	}
	defer func() { _ = a.store.Unlock(context.WithoutCancel(ctx), key) }()
	return a.store.Delete(ctx, key) == nil
}

// keyType returns the generator of keys of the type.
func keyType(name string) (func() (crypto.Signer, error), error) {
	if newKey := keyTypes[cmp.Or(strings.ToUpper(name), "EC256")]; newKey != nil {
		return newKey, nil
	}
	return nil, fmt.Errorf("keyType %q: want one of %s", name, strings.Join(slices.Sorted(maps.Keys(keyTypes)), ", "))
}
