package cluster_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/cluster/record"
	"fairlead/test/authority"
	"fairlead/test/etcd"
	"fairlead/test/place"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// declaredGateway is a gateway whose resolver stores certificates in the cluster.
const declaredGateway = `gateway:
  entryPoints:
    web: {address: ":80"}
    websecure: {address: ":443"}
  certificatesResolvers:
    le:
      acme: {storage: cluster, caServer: "%s", caCertificates: ["%s"], caServerName: example.com,
        httpChallenge: {entryPoint: web}}
  http:
    services:
      s: {loadBalancer: {servers: [{url: "http://127.0.0.1:8080"}]}}
    routers:
      plain: {rule: PathPrefix(` + "`/`" + `), service: s, entryPoints: [web]}
`

// issuers are hosts with gateways, and an authority whose requests always reach the second host.
type issuers struct {
	*lan
	authority *authority.Authority
}

func newIssuers(t *testing.T) *issuers {
	t.Helper()
	l := newLAN(t)
	l.joined()
	at := l.connected(60)
	return &issuers{l, authority.Start(t, authority.Order{Address: "192.0.2.60:14000", Names: "192.0.2.2"},
		child.Place{Netns: at.File()})}
}

// declare makes a host's gateway want certificates for the names.
func (l *issuers) declare(h *host, names ...string) {
	l.Helper()
	text := fmt.Sprintf(declaredGateway, l.authority.URL, l.authority.Roots)
	for i, name := range names {
		text += fmt.Sprintf("      r%d: {rule: Host(`%s`), service: s, entryPoints: [websecure], tls: "+
			"{certResolver: le}}\n", i, name)
	}
	file := filepath.Join(l.TempDir(), "fairlead.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		l.Fatal(err)
	}
	h.Run("apply", "-f", file)
}

// serial returns the serial number of the certificate with which a host serves a name. It is empty if clients
// refuse the certificate.
func (l *issuers) serial(h *host, name string) string {
	l.Helper()
	conn, err := place.Dial(h.ns.Do, "tcp", "127.0.0.1:443", place.Timeout)
	if err != nil {
		l.Fatalf("%s: %v", h.name, err)
	}
	defer conn.Close()
	client := tls.Client(conn, &tls.Config{ServerName: name, RootCAs: l.authority.Root})
	ctx, cancel := context.WithTimeout(l.Context(), place.Timeout)
	defer cancel()
	if client.HandshakeContext(ctx) != nil {
		return ""
	}
	return client.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// shared waits until hosts serve a name with a certificate, and checks that it is the same one.
func (l *issuers) shared(name string, hosts ...*host) (serial string) {
	l.Helper()
	for _, h := range hosts {
		got := ""
		l.until(h.name+" serves "+name, func() bool { got = l.serial(h, name); return got != "" })
		if serial == "" {
			serial = got
		} else if got != serial {
			l.Errorf("%s serves %s with certificate %s, want %s", h.name, name, got, serial)
		}
	}
	return serial
}

// ordered checks how many certificates the authority has been asked for.
func (l *issuers) ordered(want int) {
	l.Helper()
	if n := l.authority.Orders(); n != want {
		l.Errorf("the authority has got %d orders, want %d", n, want)
	}
}

// TestCertificates obtains a certificate for three hosts. The authority reaches the second, which does not
// want it at first. It is served while etcd is away, also by daemons that start then, and one that is missing
// waits with the reason.
func TestCertificates(t *testing.T) {
	l := newIssuers(t)
	one, two, three := l.hosts[0], l.hosts[1], l.hosts[2]
	l.declare(two)
	l.declare(one, "a.test")
	l.declare(three, "a.test")
	serial := l.shared("a.test", one, three)
	l.declare(two, "a.test")
	l.shared("a.test", one, two, three)
	l.ordered(1)
	client := etcd.Client(t, l.etcd.Members...)
	all, err := client.Get(t.Context(), "/fairlead/v1/default/"+record.Certificates, clientv3.WithPrefix())
	if err != nil || len(all.Kvs) != 2 {
		t.Errorf("etcd has %d values of certificates, %v; want an account and a certificate", len(all.Kvs), err)
	}
	for _, e := range all.Kvs {
		if strings.Contains(string(e.Value), "rivateKey") || strings.Contains(string(e.Value), "ertificate") {
			t.Errorf("etcd's users can read %s: %s", e.Key, e.Value)
		}
	}
	l.etcd.Members[0].Kill()
	for _, h := range l.hosts {
		h.Stop()
		h.Start()
		if got := l.serial(h, "a.test"); got != serial {
			t.Errorf("%s without etcd serves certificate %q, want %s", h.name, got, serial)
		}
	}
	l.declare(one, "a.test", "b.test")
	l.until("host1 says why there is no certificate", func() bool {
		said := one.Run("gateway", "certificates")
		return strings.Contains(said, "b.test") && strings.Contains(said, "etcd does not answer")
	})
	l.ordered(1)
	l.etcd.Members[0].Start()
	l.shared("b.test", one)
	l.ordered(2)
}

// TestIssuerKilled kills the host that obtains a certificate, while the host that the authority reaches does
// not answer. Another host obtains it, and the killed one gets it when it is back.
func TestIssuerKilled(t *testing.T) {
	l := newIssuers(t)
	one, two, three := l.hosts[0], l.hosts[1], l.hosts[2]
	client := etcd.Client(t, l.etcd.Members...)
	l.declare(two)
	resume := two.Pause()
	l.declare(one, "a.test")
	l.declare(three, "a.test")
	ids := map[string]*host{}
	for _, n := range one.status().Nodes {
		for _, h := range l.hosts {
			if h.name == n.Name {
				ids[n.ID] = h
			}
		}
	}
	var issuer *host
	l.until("a challenge is published", func() bool {
		got, err := client.Get(t.Context(), "/fairlead/v1/default/"+record.Challenges, clientv3.WithPrefix())
		if err != nil || len(got.Kvs) == 0 {
			return false
		}
		locks, err := client.Get(t.Context(), "/fairlead/v1/default/"+record.CertificateLocks, clientv3.WithPrefix())
		if err != nil || len(locks.Kvs) == 0 {
			return false
		}
		for id, h := range ids {
			if strings.Contains(string(locks.Kvs[0].Value), id) {
				issuer = h
			}
		}
		return issuer != nil
	})
	issuer.Kill()
	resume()
	other := one
	if issuer == one {
		other = three
	}
	begun := time.Now()
	l.shared("a.test", other)
	t.Logf("%s was killed, and %s has a certificate %s later", issuer.name, other.name,
		time.Since(begun).Round(time.Millisecond))
	issuer.Start()
	l.shared("a.test", other, issuer)
	left, err := client.Get(t.Context(), "/fairlead/v1/default/"+record.Challenges, clientv3.WithPrefix())
	if err != nil || len(left.Kvs) != 0 {
		t.Errorf("%d challenges are left, %v", len(left.Kvs), err)
	}
}
