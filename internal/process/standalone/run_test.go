package standalone

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/gateway/acme/acmetest"
	"fairlead/internal/gateway/serving"
	"fairlead/internal/lab/certificate"
	model "fairlead/internal/model/gateway"
	helper "fairlead/test/process"

	"golang.org/x/sys/unix"
)

// begin runs a gateway that sends the requests for a.test to a server.
func begin(t *testing.T, begun chan<- bool, may <-chan bool) *world {
	t.Helper()
	dir := t.TempDir()
	pair, err := certificate.New("a.test")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"own.pem": pair.Chain, "own.key": pair.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	routes(t, dir, "a.test", server(t, "one", begun, may))
	return start(t, dir, static(dir))
}

// TestRun sends requests to a gateway and its own services, changes its files and ends it while a
// request is in progress.
func TestRun(t *testing.T) {
	begun, may := make(chan bool), make(chan bool)
	w := begin(t, begun, may)
	w.want("web", "http://a.test/", "200 one")
	w.want("traefik", "http://x/ping", "200 OK")
	w.want("traefik", "http://x/metrics",
		`traefik_service_requests_total{code="200",method="GET",protocol="http",service="a@file"`)
	w.want("traefik", "http://x/api/rawdata", `"a@file"`)
	answer, err := client(t, w.addresses["web"]).Get("https://a.test/")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if got := answer.TLS.PeerCertificates[0].Subject.CommonName; got != "a.test" {
		t.Errorf("the certificate is for %s", got)
	}
	w.reopen()
	routes(t, w.dir, "b.test", server(t, "two", nil, nil))
	w.patiently("the new file is not in use", func() bool {
		got, err := w.get("web", "http://b.test/")
		return err == nil && got == "200 two"
	})
	routes(t, w.dir, "a.test", server(t, "three", begun, may))
	w.patiently("the file is not in use", func() bool {
		got, err := w.get("web", "http://a.test/")
		return err == nil && got == "200 three"
	})
	serving, got := w.serves(), make(chan string)
	go func() {
		text, err := w.get("web", "http://a.test/slow")
		got <- fmt.Sprint(text, err)
	}()
	<-begun
	if err := w.Cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.patiently("the gateway accepts connections still", func() bool {
		_, err := w.get("web", "http://a.test/")
		return err != nil
	})
	close(may)
	if text := <-got; text != "200 three<nil>" {
		t.Errorf("the request in progress: %s", text)
	}
	if err := w.Wait(); err != nil {
		t.Errorf("the gateway: %v", err)
	}
	if !ended(serving) {
		t.Errorf("the serving process %d runs on", serving)
	}
}

// reopen renames the file of the access log, as logrotate does.
func (w *world) reopen() {
	w.Helper()
	path := filepath.Join(w.dir, "access.log")
	if err := os.Rename(path, path+".1"); err != nil {
		w.Fatal(err)
	}
	if err := w.Cmd.Process.Signal(unix.SIGUSR1); err != nil {
		w.Fatal(err)
	}
	w.patiently("there is no new access log", func() bool {
		_, _ = w.get("web", "http://a.test/after")
		text, err := os.ReadFile(path)
		return err == nil && bytes.Contains(text, []byte("/after"))
	})
	if text, err := os.ReadFile(path + ".1"); err != nil || !bytes.Contains(text, []byte(`"GET / HTTP/1.1" 200`)) {
		w.Errorf("the renamed access log: %q %v", text, err)
	}
}

// TestKilled kills the serving process, which starts again, and then the controlling process:
// nothing remains.
func TestKilled(t *testing.T) {
	w := begin(t, nil, nil)
	w.want("web", "http://a.test/", "200 one")
	for range 2 {
		pid := w.serves()
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		w.patiently("the killed process runs", func() bool { return ended(pid) })
		w.want("web", "http://a.test/", "200 one") // waits in the queue of the socket
	}
	pid := w.serves()
	if err := w.Kill(); err != nil {
		t.Fatal(err)
	}
	w.patiently("the serving process runs on", func() bool { return ended(pid) })
	// The last thread of an ended process closes its sockets.
	for name, at := range w.addresses {
		w.patiently("entry point "+name+" accepts connections", func() bool {
			c, err := net.Dial("tcp", at)
			if err == nil {
				c.Close()
			}
			return err != nil
		})
	}
}

// TestCertificates obtains certificates by HTTP-01 and TLS-ALPN-01. Only the controlling process
// has the storage.
func TestCertificates(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("run the test as root: only root starts processes of other users")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	known := httptest.NewTLSServer(nil) // it has the authority's certificate
	roots := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: known.Certificate().Raw}))
	known.Close()
	dir := t.TempDir()
	static := static(dir)
	static.EntryPoints = []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0"}, {Name: "secure",
		Address: "127.0.0.1:0"}}
	static.API, static.Ping, static.Metrics = nil, nil, nil
	storage := filepath.Join(dir, "acme.json")
	static.Resolvers = map[string]*model.Resolver{
		"http": {CAServer: "https://" + l.Addr().String() + "/dir", CACertificates: []string{roots}, Storage: storage,
			HTTPChallenge: "web"},
		"alpn": {CAServer: "https://" + l.Addr().String() + "/dir", CACertificates: []string{roots}, Storage: storage,
			TLSChallenge: true},
	}
	text := "http:\n  routers:\n    a: {rule: Host(`a.test`), service: noop@internal, tls: {certResolver: http}}\n" +
		"    b: {rule: Host(`b.test`), service: noop@internal, tls: {certResolver: alpn}}\n"
	provide(t, dir, text)
	w := start(t, dir, static)
	names, stop, err := acmetest.Names("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	authority, err := acmetest.Start(acmetest.Options{Listener: l, DNS: names, HTTPPort: w.port("web"),
		TLSPort: w.port("secure")})
	if err != nil {
		t.Fatal(err)
	}
	defer authority.Close()
	for _, name := range []string{"a.test", "b.test"} {
		w.patiently("no certificate for "+name, func() bool { return strings.HasPrefix(w.issuer(name), "Pebble") })
	}
	w.wantSecluded(w.serves(), storage)
	if err := w.Cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(); err != nil {
		t.Error(err)
	}
}

func (w *world) port(entry string) int {
	_, text, _ := strings.Cut(w.addresses[entry], ":")
	port, err := strconv.Atoi(text)
	if err != nil {
		w.Fatal(err)
	}
	return port
}

// issuer returns who has issued the certificate that a client gets for the name.
func (w *world) issuer(name string) string {
	c, err := tls.Dial("tcp", w.addresses["secure"], &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].Issuer.CommonName
}

// wantSecluded checks that the process has another user than the file, no capabilities, and no
// descriptor of it.
func (w *world) wantSecluded(pid int, storage string) {
	w.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		w.Fatal(err)
	}
	for _, want := range []string{fmt.Sprintf("Uid:\t%d\t", serving.User), "CapEff:\t0000000000000000\n",
		"NoNewPrivs:\t1\n"} {
		if !bytes.Contains(status, []byte(want)) {
			w.Errorf("the serving process lacks %q:\n%s", want, status)
		}
	}
	var info unix.Stat_t
	if err := unix.Stat(storage, &info); err != nil || info.Uid != 0 || info.Mode&0o777 != 0o600 {
		w.Errorf("the storage: user %d, mode %o, %v", info.Uid, info.Mode, err)
	}
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(open) == 0 {
		w.Fatal(open, err)
	}
	for _, fd := range open {
		if to, _ := os.Readlink(fd); to == storage {
			w.Errorf("the serving process has the storage open")
		}
	}
	var stored map[string]any
	text, err := os.ReadFile(storage)
	if err == nil {
		err = json.Unmarshal(text, &stored)
	}
	if err != nil || stored["http"] == nil || stored["alpn"] == nil {
		w.Errorf("the storage has %v: %v", stored, err)
	}
}

// TestSameUser runs a gateway that is not root, so that both processes have its user.
func TestSameUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("run the test as root: only root starts processes of other users")
	}
	const user = 12345
	dir := t.TempDir()
	for at := dir; at != "/tmp" && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	static := static(dir)
	static.AccessLog = nil
	provide(t, dir, "http: {routers: {a: {rule: Host(`a.test`), service: noop@internal}}}")
	cmd := child.Self(gatewayRole)
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	p := &helper.Process{Worker: &child.Worker{}}
	var err error
	if p.In, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Out = bufio.NewReader(out)
	if p.Process, err = child.Start(context.Background(), cmd, child.Place{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	w := follow(t, p, dir, static)
	w.want("traefik", "http://x/ping", "200 OK")
	serving := w.serves()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", serving))
	if err != nil || !bytes.Contains(status, fmt.Appendf(nil, "Uid:\t%d\t", user)) ||
		!bytes.Contains(status, []byte("Seccomp:\t2\n")) {
		t.Errorf("the serving process: %v\n%s", err, status)
	}
	// The kernel gives the files of processes that must not be traced to root.
	for _, pid := range []int{p.Cmd.Process.Pid, serving} {
		var info unix.Stat_t
		if err := unix.Stat(fmt.Sprintf("/proc/%d/environ", pid), &info); err != nil || info.Uid != 0 {
			t.Errorf("processes of user %d may trace process %d: %v", info.Uid, pid, err)
		}
	}
}
