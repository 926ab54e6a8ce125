package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/gateway/serving"
	"fairlead/internal/kernel/netns"
	"fairlead/test/place"

	"golang.org/x/net/websocket"
)

// declared is the gateway of the upgraded daemon.
const declared = `
gateway:
  entryPoints:
    web: {address: ":80"}
    websecure: {address: ":443"}
    stream: {address: ":7000"}
  http:
    routers:
      plain: {rule: PathPrefix("/"), entryPoints: [web], service: server}
      secure: {rule: PathPrefix("/"), entryPoints: [websecure], service: server, tls: {}}
    services:
      server:
        loadBalancer:
          servers: [{url: "http://127.0.0.1:8080"}, {url: "http://127.0.0.1:8081"}]
  tcp:
    routers:
      stream: {rule: HostSNI("*"), entryPoints: [stream], service: echo}
    services:
      echo:
        loadBalancer:
          servers: [{address: "127.0.0.1:7777"}]
`

// upgraded is a host whose daemon is upgraded.
type upgraded struct {
	*example
	dir, program string
	daemon       *child.Process
}

// TestUpgrade replaces the daemon by one of another program file, as an upgrade of the package does,
// under load: no request may fail, and streams stay open. `make soak` sends more requests.
func TestUpgrade(t *testing.T) {
	u := newUpgraded(t)
	loads := u.loads()
	streams := map[string]io.ReadWriteCloser{"WebSocket": u.webSocket(), "TCP": u.stream()}
	for round := range setting(t, "FAIRLEAD_GATEWAY_UPGRADES", 2) {
		first := u.serving()
		u.upgrade()
		u.patiently(func() (bool, string) {
			now := u.serving()
			return len(now) == 2 && !slices.Equal(first, now),
				fmt.Sprintf("the serving processes are %v, were %v", now, first)
		})
		for name, s := range streams {
			u.echo(s, fmt.Sprintf("%s after upgrade %d", name, round+1))
		}
		for name, l := range loads {
			wantAll(t, fmt.Sprintf("%s during upgrade %d", name, round+1), l.next())
		}
	}
	for name, s := range streams {
		u.echo(s, name)
		s.Close()
	}
	for name, l := range loads {
		wantAll(t, name, l.end())
		l.client.CloseIdleConnections()
	}
	u.patiently(func() (bool, string) {
		now := u.serving()
		return len(now) == 1, fmt.Sprintf("the serving processes are %v, want that of the last upgrade", now)
	})
}

// newUpgraded starts the daemon with the gateway and its servers.
func newUpgraded(t *testing.T) *upgraded {
	t.Helper()
	host, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	dir := t.TempDir()
	u := &upgraded{example: &example{stack: &stack{T: t}, host: host}, dir: dir}
	u.program = filepath.Join(dir, "fairlead")
	made, err := built()
	if err != nil {
		t.Fatal(err)
	}
	u.install(filepath.Join(made, "fairlead"))
	u.serve()
	u.start()
	t.Cleanup(func() {
		u.apply("services: {}\n")
		u.stop()
		u.patiently(func() (bool, string) {
			left := u.serving()
			return len(left) == 0, fmt.Sprintf("the serving processes %v are left", left)
		})
	})
	u.apply(declared)
	u.until(200, "GET", "http://any.example.com/")
	return u
}

// serve starts the servers behind the gateway.
func (u *upgraded) serve() {
	u.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	mux.Handle("/echo", websocket.Handler(func(c *websocket.Conn) { place.Echo(c) }))
	for _, address := range []string{"127.0.0.1:8080", "127.0.0.1:8081"} {
		l, err := place.Listen(u.host.Do, address)
		if err != nil {
			u.Fatal(err)
		}
		s := &http.Server{Handler: mux}
		go func() { _ = s.Serve(l) }() // until Close
		u.Cleanup(func() { s.Close() })
	}
	place.Serve(u, u.host.Do, "127.0.0.1:7777", place.Echo)
}

// command returns a process of the program on the host, in a mount namespace of its own.
func (u *upgraded) command(args ...string) *child.Process {
	u.Helper()
	cmd := exec.Command("unshare", append([]string{"--mount", "--", u.program}, args...)...)
	cmd.Env = append(os.Environ(), "FAIRLEAD_SOCKET="+u.socket())
	cmd.Stdout, cmd.Stderr = u.Output(), u.Output()
	// The test's context ends before its cleanups.
	p, err := child.Start(context.Background(), cmd, child.Place{Netns: u.host.File()})
	if err != nil {
		u.Fatal(err)
	}
	return p
}

func (u *upgraded) socket() string { return filepath.Join(u.dir, "socket") }

// start starts the daemon, and waits until it runs the gateway that was declared.
func (u *upgraded) start() {
	u.Helper()
	u.daemon = u.command("daemon", "--run-dir", filepath.Join(u.dir, "run"),
		"--state-dir", filepath.Join(u.dir, "state"), "--socket", u.socket())
	u.patiently(func() (bool, string) {
		_, err := os.Stat(u.socket())
		return err == nil, "the daemon has no socket"
	})
}

// stop ends the daemon with the signal that systemd sends.
func (u *upgraded) stop() {
	u.Helper()
	if err := u.daemon.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		u.Fatal(err)
	}
	if err := u.daemon.Wait(); err != nil {
		u.Fatalf("the daemon exits with: %v", err)
	}
	_ = os.Remove(u.socket())
}

// upgrade replaces the program's file, and the daemon by one that runs it.
func (u *upgraded) upgrade() {
	u.Helper()
	u.install(u.program)
	u.stop()
	u.start()
}

// install makes a copy of the file the program.
func (u *upgraded) install(file string) {
	u.Helper()
	content, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(u.program+".new", content, 0o755)
	}
	if err == nil {
		err = os.Rename(u.program+".new", u.program)
	}
	if err != nil {
		u.Fatal(err)
	}
}

// apply applies a declaration.
func (u *upgraded) apply(text string) {
	u.Helper()
	file := filepath.Join(u.dir, "fairlead.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		u.Fatal(err)
	}
	if err := u.command("apply", "-f", file).Wait(); err != nil {
		u.Fatalf("fairlead apply: %v", err)
	}
}

// serving returns the serving processes on the host.
func (u *upgraded) serving() (pids []string) {
	u.Helper()
	own, err := u.host.Identity()
	if err != nil {
		u.Fatal(err)
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		u.Fatal(err)
	}
	for _, p := range all {
		environment, err := os.ReadFile(p + "/environ")
		if err != nil || !slices.Contains(strings.Split(string(environment), "\x00"), child.Role+"="+serving.Role) {
			continue // another process, or one that has ended
		}
		if netns, err := netns.Identify(p + "/ns/net"); err == nil && netns == own {
			pids = append(pids, filepath.Base(p))
		}
	}
	return pids
}

// loads sends requests on kept and on new connections, with and without TLS.
func (u *upgraded) loads() map[string]*load {
	all := map[string]*load{}
	for name, l := range map[string]*load{
		"HTTP":                     {url: "http://any.example.com/"},
		"HTTP on new connections":  {url: "http://any.example.com/"},
		"HTTPS":                    {url: "https://any.example.com/"},
		"HTTPS on new connections": {url: "https://any.example.com/"},
		"HTTPS, HTTP/2":            {url: "https://any.example.com/", again: true},
	} {
		l.client = u.client()
		t := l.client.Transport.(*http.Transport)
		t.TLSClientConfig.InsecureSkipVerify = true
		t.DisableKeepAlives, t.ForceAttemptHTTP2 = strings.Contains(name, "new"), l.again
		all[name] = l.start(u.T, setting(u.T, "FAIRLEAD_GATEWAY_RATE", 100)/5)
	}
	return all
}

// stream opens a connection to the TCP router.
func (u *upgraded) stream() net.Conn {
	u.Helper()
	conn, err := u.dial(":7000")
	if err != nil {
		u.Fatal(err)
	}
	u.Cleanup(func() { conn.Close() })
	return conn
}

// webSocket opens a WebSocket.
func (u *upgraded) webSocket() *websocket.Conn {
	u.Helper()
	conn, err := u.dial(":80")
	if err != nil {
		u.Fatal(err)
	}
	config, err := websocket.NewConfig("ws://any.example.com/echo", "http://any.example.com/")
	if err != nil {
		u.Fatal(err)
	}
	ws, err := websocket.NewClient(config, conn)
	if err != nil {
		u.Fatal(err)
	}
	u.Cleanup(func() { ws.Close() })
	return ws
}

// echo sends a text to the server of a stream, which returns it.
func (u *upgraded) echo(s io.ReadWriter, text string) {
	u.Helper()
	got := make([]byte, len(text))
	_, err := io.WriteString(s, text)
	if err == nil {
		_, err = io.ReadFull(s, got)
	}
	if err != nil || string(got) != text {
		u.Errorf("sent %q, got %q: %v", text, got, err)
	}
}
