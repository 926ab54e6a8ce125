// Package certificates_test runs the daemon's gateway with an ACME authority and a DNS server.
package certificates_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/gateway/serving"
	"fairlead/internal/gateway/view"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	model "fairlead/internal/model/gateway"
	"fairlead/test/authority"
	"fairlead/test/daemons"
	"fairlead/test/place"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{authority.Role: authority.Main, daemons.Role: daemons.Main,
		daemons.CLIRole: daemons.CLI, serving.Role: serving.Main})
	os.Exit(m.Run())
}

// declared is a gateway with a resolver for each challenge. The TCP router for all names must get
// no challenge.
const declared = `gateway:
  entryPoints:
    web: {address: "127.0.0.1:80"}
    websecure: {address: "127.0.0.1:443"}
  certificatesResolvers:
    http: {acme: {caServer: "%[1]s", caCertificates: ["%[2]s"], httpChallenge: {entryPoint: web}}}
    tls: {acme: {caServer: "%[1]s", caCertificates: ["%[2]s"], tlsChallenge: {}}}
    dns: {acme: {caServer: "%[1]s", caCertificates: ["%[2]s"],
      dnsChallenge: {provider: rfc2136, resolvers: ["127.0.0.1:53"]}}}
  http:
    routers:
      api: {rule: Host(` + "`api.test`" + `), service: s, tls: {certResolver: http}}
      www: {rule: Host(` + "`www.test`" + `), service: s, tls: {certResolver: tls}}
      missing: {rule: Host(` + "`missing.test`" + `), service: s, tls: {certResolver: http}}
      shop: {rule: Host(` + "`shop.test`) || Host(`a.shop.test`" + `), service: s, tls: {certResolver: dns,
        domains: [{main: shop.test, sans: ["*.shop.test"]}]}}
    services:
      s: {loadBalancer: {servers: [{url: "http://127.0.0.1:8080"}]}}
  tcp:
    routers:
      db: {rule: HostSNI(` + "`db.test`" + `), service: s, entryPoints: [websecure], tls: {certResolver: tls}}
      all: {rule: HostSNI(` + "`*`" + `), service: s, entryPoints: [websecure], tls: {passthrough: true}}
    services:
      s: {loadBalancer: {servers: [{address: "127.0.0.1:8443"}]}}
`

// world is a host with a daemon, an authority and a DNS server.
type world struct {
	*testing.T
	host      *netns.Namespace
	authority *authority.Authority
	daemon    *daemons.Daemon
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, host: kerneltest.Netns(t)}
	at := child.Place{Netns: w.host.File()}
	startKnot(t, w.host)
	w.authority = authority.Start(t, authority.Order{Address: "127.0.0.1:14000", DNS: "127.0.0.1:53"}, at)
	for name, value := range map[string]string{"NAMESERVER": "127.0.0.1", "TSIG_KEY": keyName,
		"TSIG_SECRET": keySecret, "TSIG_ALGORITHM": "hmac-sha256."} {
		t.Setenv("RFC2136_"+name, value)
	}
	do := daemons.In(t.TempDir())
	t.Cleanup(func() { // the serving process outlives the daemon
		left := serving.Options{Directory: filepath.Join(do.Run, "gateway"), Netns: w.host.File(),
			Log: slog.New(slog.DiscardHandler)}
		if err := serving.End(context.Background(), left); err != nil {
			t.Error(err)
		}
	})
	w.daemon = daemons.New(t, do, at)
	return w
}

// TestDaemon checks that the gateway of fairlead.yaml obtains certificates by each challenge,
// shows why a name has none, and that the next daemon obtains none again.
func TestDaemon(t *testing.T) {
	w := newWorld(t)
	w.apply(declared)
	w.settled()
	serials := map[string]string{}
	for _, name := range []string{"api.test", "www.test", "db.test", "shop.test", "a.shop.test"} {
		serials[name] = w.served(name).SerialNumber.String()
	}
	if serials["shop.test"] != serials["a.shop.test"] {
		t.Error("a name and its wildcard have two certificates")
	}
	for _, c := range w.certificates() {
		if slices.Contains(c.Names, "missing.test") && (c.State != model.CertificateFailed || c.Failures != 1 ||
			!strings.Contains(c.Reason, "missing.test") || !time.Now().Before(c.Next)) {
			t.Errorf("missing.test: %+v", c)
		}
	}
	if table := w.daemon.Run("gateway", "certificates"); !strings.Contains(table, "could not resolve") {
		t.Errorf("the list does not say why missing.test has no certificate:\n%s", table)
	}
	info, err := os.Stat(filepath.Join(w.daemon.State, "acme.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the storage: %v, %v, want mode 0600", info, err)
	}
	orders := w.authority.Orders()
	w.daemon.Kill()
	w.daemon.Start()
	w.settled()
	for name, serial := range serials {
		if got := w.served(name).SerialNumber.String(); got != serial {
			t.Errorf("after a restart of the daemon, %s has another certificate", name)
		}
	}
	if n := w.authority.Orders(); n != orders || n != 5 {
		t.Errorf("%d orders, and %d after a restart, want 5", orders, n)
	}
}

// waiting is a gateway whose attempt waits for the time that the parameter says.
const waiting = `gateway:
  entryPoints:
    websecure: {address: "127.0.0.1:443"}
  certificatesResolvers:
    dns: {acme: {caServer: "%[1]s", caCertificates: ["%[2]s"],
      dnsChallenge: {provider: rfc2136, resolvers: ["127.0.0.1:53"], delayBeforeCheck: %[3]s}}}
  http:
    routers:
      shop: {rule: Host(` + "`shop.test`" + `), service: s, tls: {certResolver: dns}}
    services:
      s: {loadBalancer: {servers: [{url: "http://127.0.0.1:8080"}]}}
`

// TestChangeDuringAttempt checks that a change of a resolver ends its attempt, which does not count
// as failed, and begins another one in the same serving process; and that the gateway can end
// during an attempt.
func TestChangeDuringAttempt(t *testing.T) {
	w := newWorld(t)
	state := func(want string) {
		t.Helper()
		w.until(func(all []model.CertificateState) bool {
			return len(all) == 1 && all[0].State == want && all[0].Failures == 0
		})
	}
	w.apply(waiting, "1h")
	state(model.CertificateObtaining)
	before := w.serving()
	w.apply(waiting, "0")
	state(model.CertificateValid)
	if after := w.serving(); after != before {
		t.Errorf("the serving process %s is replaced by %s", before, after)
	}
	w.apply(strings.ReplaceAll(waiting, "shop.test", "db.test"), "1h")
	state(model.CertificateObtaining)
	w.apply("# no gateway; %[1]s %[2]s\n")
	w.daemon.Stop()
}

// serving returns the name of the control socket, which each serving process has of its own.
func (w *world) serving() string {
	w.Helper()
	all, err := filepath.Glob(filepath.Join(w.daemon.Order.Run, "gateway", "*.sock"))
	if err != nil || len(all) != 1 {
		w.Fatalf("serving processes: %v, %v", all, err)
	}
	return all[0]
}

// apply makes the daemon have a gateway that the format declares.
func (w *world) apply(format string, args ...any) {
	w.Helper()
	file := filepath.Join(filepath.Dir(w.daemon.State), "fairlead.yaml")
	text := fmt.Appendf(nil, format, append([]any{w.authority.URL, w.authority.Roots}, args...)...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		w.Fatal(err)
	}
	w.daemon.Run("apply", "-f", file)
}

// certificates returns the states of the certificates.
func (w *world) certificates() (all []model.CertificateState) {
	w.Helper()
	var d view.RawData
	if text := w.daemon.Run("gateway", "certificates", "-o", "json"); json.Unmarshal([]byte(text), &d) != nil {
		w.Fatalf("certificates: %s", text)
	}
	for _, c := range d.Certificates {
		if c.ACME != nil {
			all = append(all, *c.ACME)
		}
	}
	return all
}

// settled waits until each certificate is valid or has failed.
func (w *world) settled() {
	w.Helper()
	w.until(func(all []model.CertificateState) bool {
		return len(all) == 5 && !slices.ContainsFunc(all, func(c model.CertificateState) bool {
			return c.State != model.CertificateValid && c.State != model.CertificateFailed
		})
	})
}

// until waits until the states are accepted. No command announces a change of them.
func (w *world) until(accept func([]model.CertificateState) bool) {
	w.Helper()
	for end := time.Now().Add(2 * place.Timeout); ; time.Sleep(100 * time.Millisecond) {
		all := w.certificates()
		if accept(all) {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("certificates: %+v", all)
		}
	}
}

// served returns the certificate that a client gets for the name and verifies.
func (w *world) served(name string) *x509.Certificate {
	w.Helper()
	conn, err := place.Dial(w.host.Do, "tcp", "127.0.0.1:443", place.Timeout)
	if err != nil {
		w.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(place.Timeout)) // fails only with the connection
	c := tls.Client(conn, &tls.Config{ServerName: name, RootCAs: w.authority.Root})
	if err := c.Handshake(); err != nil {
		w.Fatalf("handshake for %s: %v", name, err)
	}
	return c.ConnectionState().PeerCertificates[0]
}
