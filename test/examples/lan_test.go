// Package examples_test runs the declarations of the folder examples in the environments for which
// they are written.
package examples_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/gateway/serving"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/test/daemons"
	"fairlead/test/place"
	"fairlead/test/shell"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{daemons.Role: daemons.Main, daemons.CLIRole: daemons.CLI,
		serving.Role: serving.Main})
	os.Exit(m.Run())
}

// lan is a switch with hosts, by name. Each host's link to the switch is eth0.
type lan struct {
	testing.TB
	hosts map[string]*netns.Namespace
	nginx map[string]*child.Process
	// daemons contains the daemons by the names of their hosts.
	daemons map[string]*daemons.Daemon
	certs   string
}

func newLAN(t testing.TB, addresses map[string]string) *lan {
	t.Helper()
	l := &lan{TB: t, hosts: map[string]*netns.Namespace{}, nginx: map[string]*child.Process{},
		daemons: map[string]*daemons.Daemon{}, certs: t.TempDir()}
	middle := kerneltest.Netns(l)
	shell.Run(t, middle.Do, "ip link add switch type bridge && ip link set switch up")
	for name, at := range addresses {
		ns := kerneltest.Netns(l)
		l.hosts[name] = ns
		shell.Run(t, middle.Do,
			fmt.Sprintf("ip link add %s type veth peer name eth0 netns /proc/%d/fd/%d && ip link set %[1]s master switch up", name, os.Getpid(), ns.File().Fd()))
		l.sh(name, "ip link set lo up && ip link set eth0 up && ip addr add "+at+"/24 dev eth0")
	}
	l.certify()
	return l
}

// sh runs a line on a host.
func (l *lan) sh(host, line string) string {
	l.Helper()
	return shell.Run(l, l.hosts[host].Do, line)
}

// start starts a daemon on a host.
func (l *lan) start(host string) {
	l.Helper()
	l.daemons[host] = daemons.New(l, daemons.In(l.TempDir()), child.Place{Netns: l.hosts[host].File()})
}

// certify creates a key and a self-signed certificate.
func (l *lan) certify() {
	l.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		l.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"example.com"},
		NotAfter: time.Now().Add(24 * time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		l.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		l.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"key": {Type: "PRIVATE KEY", Bytes: private},
		"cert": {Type: "CERTIFICATE", Bytes: cert}} {
		if err := os.WriteFile(filepath.Join(l.certs, name), pem.EncodeToMemory(block), 0o600); err != nil {
			l.Fatal(err)
		}
	}
}

// serve starts nginx on a host, and waits until it listens. nginx serves only example.com, and
// answers with the host's name and the client's address.
func (l *lan) serve(host string) {
	l.Helper()
	l.startNginx(host, 443, fmt.Sprintf(`
	ssl_certificate %[1]s/cert; ssl_certificate_key %[1]s/key;
	server { listen 443 ssl default_server; return 404; }
	server { listen 443 ssl; server_name example.com; location / { return 200 "%[2]s $remote_addr"; } }
`, l.certs, host))
}

// startNginx starts nginx with these servers on a host, and waits until it listens at the port.
func (l *lan) startNginx(host string, port int, servers string) {
	l.Helper()
	dir := l.TempDir()
	config := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off; master_process off; pid nginx.pid; error_log stderr;
events { worker_connections 512; }
http { access_log off; %s }
`, servers)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		l.Fatal(err)
	}
	cmd := exec.Command("nginx", "-p", dir, "-e", "stderr", "-c", config)
	cmd.Stderr = os.Stderr
	p, err := child.Start(context.Background(), cmd, child.Place{Netns: l.hosts[host].File()})
	if err != nil {
		l.Fatal(err)
	}
	l.nginx[host] = p
	l.Cleanup(func() { _ = p.Kill() })
	l.sh(host, fmt.Sprintf("for i in $(seq 1500); do ss -Hltn sport = %d | grep -q . && exit; sleep 0.02; done; exit 1",
		port))
}

// transport connects to an address from a host, whatever the URL says, with a new connection for
// each request.
func (l *lan) transport(from, at string) *http.Transport {
	return &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return place.Dial(l.hosts[from].Do, "tcp", at, 30*time.Second)
		}}
}

// get requests https://example.com/ at an address, on a new connection. It returns the host that
// answered, and the client address that the host saw.
func (l *lan) get(from, at string) (host, client string, err error) {
	answer, err := (&http.Client{Transport: l.transport(from, at), Timeout: time.Minute}).Get("https://example.com/")
	if err != nil {
		return "", "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s", answer.Status)
	}
	host, client, _ = strings.Cut(string(body), " ")
	return host, client, err
}

// until waits until the director reports the wanted state of a real server, and returns its view.
func (l *lan) until(service, real string, want api.RealStatus) api.RealView {
	l.Helper()
	var view api.ServiceView
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var err error
		if view, err = l.daemons[director].Client.Service(l.Context(), service); err != nil {
			l.Fatal(err)
		}
		for _, r := range view.Servers {
			if r.Address.String() == real && r.State == want && !r.Checked.IsZero() {
				return r
			}
		}
	}
	l.Fatalf("%s is not %s: %+v", real, want, view.Servers)
	return api.RealView{}
}
