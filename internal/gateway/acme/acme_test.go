package acme_test

import (
	"crypto/tls"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"fairlead/internal/gateway/acme/acmetest"
	"fairlead/internal/gateway/opening"
	model "fairlead/internal/model/gateway"
	"fairlead/test/place"
)

// TestChallenges checks that a resolver obtains certificates by each challenge: for a router's
// names, for domains, and after a change of the routers.
func TestChallenges(t *testing.T) {
	for name, resolver := range map[string]model.Resolver{
		"http": {HTTPChallenge: "web", Email: "a@example.com"},
		"tls":  {TLSChallenge: true, KeyType: "RSA2048"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, acmetest.Options{}, resolver)
			w.routers(map[string]*model.Router{"a@file": secureRouter("Host(`a.test`) || Host(`b.test`)")})
			w.start()
			s := w.until("a.test,b.test", valid)
			if got := w.served("b.test"); strings.Join(got.DNSNames, ",") != "a.test,b.test" || !got.NotAfter.Equal(
				s.NotAfter) || !strings.HasPrefix(got.Issuer.CommonName, "Pebble") {
				t.Errorf("b.test has a certificate for %v from %s until %v, want that of the state %+v", got.DNSNames,
					got.Issuer, got.NotAfter, s)
			}
			if got := w.served("other.test").DNSNames; got[0] != "fairlead.invalid" {
				t.Errorf("another name has the certificate for %v", got)
			}
			w.last.ACME.Tokens = nil
			if len(w.last.ACME.Challenges) > 0 {
				t.Errorf("challenges are left: %v", w.last.ACME.Challenges)
			}
		})
	}
}

// TestRestart checks that certificates and the account survive a restart, and that Traefik
// could read the file.
func TestRestart(t *testing.T) {
	w := newWorld(t, acmetest.Options{}, model.Resolver{HTTPChallenge: "web", Email: "a@example.com"})
	w.routers(map[string]*model.Router{"a@file": secureRouter("Host(`a.test`)")})
	stop := w.start()
	w.until("a.test", valid)
	serial := w.served("a.test").SerialNumber
	stop()
	w.gateway.Apply(&model.Config{}, nil)
	w.routers(map[string]*model.Router{"a@file": secureRouter("Host(`A.test`)")})
	stop = w.start()
	w.until("a.test", valid)
	if got := w.served("a.test").SerialNumber; got.Cmp(serial) != 0 || w.authority.Orders() != 1 {
		t.Errorf("after a restart: serial %v after %d orders, want %v after one", got, w.authority.Orders(), serial)
	}
	stop()
	info, err := os.Stat(w.static.Resolvers["le"].Storage)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the storage: %v, %v", info.Mode(), err)
	}
}

// TestFailure checks that a failed attempt is shown with its reason and the next attempt, that
// a restart does not try earlier, and that other settings do.
func TestFailure(t *testing.T) {
	w := newWorld(t, acmetest.Options{}, model.Resolver{HTTPChallenge: "web"})
	w.routers(map[string]*model.Router{"m@file": secureRouter("Host(`missing.test`)")})
	stop := w.start()
	s := w.until("missing.test", failed)
	if s.Failures != 1 || !strings.Contains(s.Reason, "missing.test") || time.Until(s.Next) > time.Minute ||
		len(s.Routers) != 1 {
		t.Errorf("state %+v", s)
	}
	found := false
	for _, at := range w.gateway.Status() {
		found = found || at.Name == "m@file" && strings.Contains(strings.Join(at.Reasons, ""), "missing.test")
	}
	if !found {
		t.Errorf("the router's state does not say why it has no certificate: %+v", w.gateway.Status())
	}
	stop()
	stop = w.start()
	if again := w.until("missing.test", failed); !again.Next.Equal(s.Next) || w.authority.Orders() != 1 {
		t.Errorf("after a restart %+v and %d orders, want %+v and one", again, w.authority.Orders(), s)
	}
	stop()
	w.static.Resolvers["le"].TLSChallenge = true
	stop = w.start()
	w.until("missing.test", func(s model.CertificateState) bool { return s.Failures == 1 && w.authority.Orders() > 1 })
	stop()
}

// TestBackoff checks that a failed attempt is repeated after its time, and that a success
// clears it; and that an authority's Retry-After is longer than our own time.
func TestBackoff(t *testing.T) {
	w := newWorld(t, acmetest.Options{}, model.Resolver{TLSChallenge: true})
	w.routers(map[string]*model.Router{"a@file": secureRouter("Host(`a.test`)")})
	w.authority.Refuse(3600)
	stop := w.start(time.Millisecond)
	s := w.until("a.test", failed)
	if wait := time.Until(s.Next); wait < 50*time.Minute || wait > time.Hour {
		t.Errorf("the next attempt is in %v, want the authority's hour", wait)
	}
	stop()
	if err := os.Remove(w.static.Resolvers["le"].Storage); err != nil {
		t.Fatal(err)
	}
	w.authority.Refuse(0)
	w.routers(map[string]*model.Router{"m@file": secureRouter("Host(`missing.test`)")})
	w.start(time.Millisecond)
	w.until("missing.test", func(s model.CertificateState) bool { return s.Failures >= 3 })
}

// TestRenewal checks that a certificate is renewed before its end, and that the old one
// serves until then.
func TestRenewal(t *testing.T) {
	w := newWorld(t, acmetest.Options{Validity: 6}, model.Resolver{TLSChallenge: true})
	w.routers(map[string]*model.Router{"a@file": secureRouter("Host(`a.test`)")})
	w.start()
	first := w.until("a.test", func(s model.CertificateState) bool { return !s.NotAfter.IsZero() })
	w.until("a.test", func(s model.CertificateState) bool { return s.NotAfter.After(first.NotAfter) })
	if got := w.served("a.test"); !got.NotAfter.After(first.NotAfter) {
		t.Errorf("the certificate until %v is served, the first one was until %v", got.NotAfter, first.NotAfter)
	}
}

// TestAccountBinding checks that accounts are bound to the one at the authority.
func TestAccountBinding(t *testing.T) {
	const key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
	w := newWorld(t, acmetest.Options{KeyID: "kid-1", Key: key}, model.Resolver{TLSChallenge: true,
		EAB: &model.EAB{KID: "kid-1", HMACEncoded: key}})
	w.routers(map[string]*model.Router{"a@file": secureRouter("Host(`a.test`)")})
	w.start()
	w.until("a.test", valid)
}

// TestRefusal checks that sniStrict refuses a name whose certificate is not there yet, rather
// than to serve the default one.
func TestRefusal(t *testing.T) {
	w := newWorld(t, acmetest.Options{}, model.Resolver{HTTPChallenge: "web"})
	w.config.TLS.Options = map[string]*model.TLSOptions{"default": {SNIStrict: true}}
	w.routers(map[string]*model.Router{"a@file": secureRouter("Host(`a.test`)"),
		"m@file": secureRouter("Host(`missing.test`)")})
	w.start()
	w.until("a.test", valid)
	w.until("missing.test", failed)
	if got := w.served("a.test").DNSNames; got[0] != "a.test" {
		t.Errorf("certificate for %v", got)
	}
	c, err := tls.Dial("tcp", w.secure, &tls.Config{ServerName: "missing.test", InsecureSkipVerify: true})
	if err == nil {
		c.Close()
		t.Error("a name without a certificate is served")
	}
}

// TestPassthrough checks that a TCP router for all names does not get the challenges of the
// gateway's names, but those of its server.
func TestPassthrough(t *testing.T) {
	w := newWorld(t, acmetest.Options{}, model.Resolver{TLSChallenge: true})
	names := make(chan string, 100)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go place.Accept(l, func(c net.Conn) {
		hello, _ := opening.PeekHello(c) // without one, the name is empty
		names <- hello.ServerName
	})
	tcp := func(address string) *model.TCPService {
		return &model.TCPService{LoadBalancer: &model.TCPLoadBalancer{Servers: []model.TCPServer{{Address: address}}}}
	}
	w.config.TCP = model.TCP{
		Services: map[string]*model.TCPService{"all@file": tcp(l.Addr().String())},
		Routers: map[string]*model.TCPRouter{
			"all@file": {Rule: "HostSNI(`*`)", Service: "all@file", TLS: &model.TCPRouterTLS{Passthrough: true}},
			"db@file": {Rule: "HostSNI(`db.test`)", Service: "all@file",
				TLS: &model.TCPRouterTLS{RouterTLS: model.RouterTLS{CertResolver: "le"}}}}}
	w.routers(map[string]*model.Router{"a@file": secureRouter("Host(`a.test`)", model.Domain{Main: "b.test"})})
	w.start()
	w.until("b.test", valid)
	w.until("db.test", valid)
	if len(names) > 0 {
		t.Errorf("the server for all names gets the challenge for %s", <-names)
	}
	c, err := tls.Dial("tcp", w.secure, &tls.Config{ServerName: "other.test", NextProtos: []string{"acme-tls/1"},
		InsecureSkipVerify: true})
	if err == nil {
		c.Close()
	}
	if got := <-names; got != "other.test" {
		t.Errorf("the server for all names gets %s, want its own challenge", got)
	}
}
