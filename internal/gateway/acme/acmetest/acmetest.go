// Package acmetest has an authority for tests: pebble, the ACME server that Let's Encrypt
// tests clients with, and a DNS server that knows its names.
package acmetest

import (
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"
)

// Options are those of an authority.
type Options struct {
	// Listener is where it listens. Nil means a free port of 127.0.0.1.
	Listener net.Listener
	// HTTPPort and TLSPort are the ports where it validates names.
	HTTPPort, TLSPort int
	// DNS is the address of the DNS server that it asks.
	DNS string
	// Validity is the life of its certificates in seconds. 0 means pebble's default.
	Validity uint64
	// KeyID and Key, if not empty, must bind each account (RFC 8555, 7.3.4).
	KeyID, Key string
}

// Authority is a running authority.
type Authority struct {
	// URL is that of its directory.
	URL string
	// Roots is the certificate that its own server is verified with, as PEM text. Its names are
	// example.com, 127.0.0.1 and ::1.
	Roots string
	// Root is the certificate that the issued certificates are verified with, as PEM text.
	Root   string
	server *httptest.Server
	orders atomic.Int32
	// accounts counts the accounts that were registered.
	accounts atomic.Int32
	limit    atomic.Int32
}

// Start starts an authority.
func Start(o Options) (*Authority, error) {
	if err := os.Setenv("PEBBLE_VA_NOSLEEP", "1"); err != nil {
		return nil, err
	}
	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	if o.KeyID != "" {
		if err := store.AddExternalAccountKeyByID(o.KeyID, o.Key); err != nil {
			return nil, err
		}
	}
	signer := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {ValidityPeriod: o.Validity}})
	front := wfe.New(quiet, store, va.New(quiet, o.HTTPPort, o.TLSPort, true, o.DNS, store), signer, nil, true,
		o.KeyID != "", 0, 0)
	handler := front.Handler()
	a := &Authority{Root: string(signer.GetRootCert(0).PEM())}
	a.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/sign-me-up":
			w = counting{w, &a.accounts}
		case "/order-plz":
			if seconds := a.limit.Load(); seconds > 0 {
				refuse(w, seconds)
				return
			}
			w = counting{w, &a.orders}
		}
		handler.ServeHTTP(w, r)
	}))
	if o.Listener != nil {
		a.server.Listener.Close()
		a.server.Listener = o.Listener
	}
	a.server.Config.ErrorLog = quiet
	a.server.StartTLS()
	a.URL = a.server.URL + wfe.DirectoryPath
	a.Roots = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw}))
	return a, nil
}

// Close stops the authority.
func (a *Authority) Close() { a.server.Close() }

// counting counts what the authority creates. It refuses some requests at random, so that clients
// must repeat them with a new nonce (RFC 8555, 6.5).
type counting struct {
	http.ResponseWriter
	n *atomic.Int32
}

// WriteHeader implements http.ResponseWriter.
func (c counting) WriteHeader(status int) {
	if status == http.StatusCreated {
		c.n.Add(1)
	}
	c.ResponseWriter.WriteHeader(status)
}

// Orders returns the number of orders that the authority has accepted.
func (a *Authority) Orders() int { return int(a.orders.Load()) }

// Accounts returns the number of accounts that the authority has registered.
func (a *Authority) Accounts() int { return int(a.accounts.Load()) }

// Refuse refuses orders from now on, and asks clients to come again after so many seconds.
// 0 ends it.
func (a *Authority) Refuse(seconds int) { a.limit.Store(int32(seconds)) }

// refuse answers that the client has made too many requests (RFC 8555, 6.6).
func refuse(w http.ResponseWriter, seconds int32) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = io.WriteString(w, `{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many orders"}`)
}

// Names serves DNS by TCP, as the authority asks, at a free port of 127.0.0.1: all names but
// missing.… have the address. It returns its own address, and a function that stops it.
func Names(address string) (at string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	started := make(chan struct{})
	s := &dns.Server{Listener: l, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(
		func(w dns.ResponseWriter, q *dns.Msg) {
			answer := new(dns.Msg).SetReply(q)
			for _, question := range q.Question {
				if question.Qtype == dns.TypeA && !strings.HasPrefix(question.Name, "missing.") {
					answer.Answer = append(answer.Answer, &dns.A{Hdr: dns.RR_Header{Name: question.Name,
						Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.ParseIP(address)})
				}
			}
			_ = w.WriteMsg(answer) // the client may be gone
		})}
	go func() { _ = s.ActivateAndServe() }() // it ends by Shutdown
	<-started
	return l.Addr().String(), func() { _ = s.Shutdown() }, nil
}
