package standalone

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/gateway/serving"
	model "fairlead/internal/model/gateway"
	helper "fairlead/test/process"

	"golang.org/x/sys/unix"
)

// gatewayRole is a gateway that a test stops or kills.
const gatewayRole = "standalone"

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{serving.Role: serving.Main, gatewayRole: helper.Main(run)})
	os.Exit(m.Run())
}

// order is what the role runs.
type order struct{ Static model.Static }

// run runs a gateway until SIGTERM. Its log is the standard output.
func run(do order) error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	return Run(ctx, do.Static, serving.Options{Stdout: os.Stderr, Stderr: os.Stderr,
		Log: slog.New(slog.NewTextHandler(os.Stdout, nil))})
}

// world is a gateway with a directory of files. The provider's are in conf.
type world struct {
	*testing.T
	*helper.Process
	dir string
	// addresses are those of the entry points.
	addresses map[string]string
}

// start runs a gateway until the test ends, and waits until it serves.
func start(t *testing.T, dir string, static model.Static) *world {
	t.Helper()
	return follow(t, helper.Run(t, gatewayRole, child.Place{}), dir, static)
}

// follow sends a process its order, and waits until it serves.
func follow(t *testing.T, p *helper.Process, dir string, static model.Static) *world {
	t.Helper()
	w := &world{T: t, Process: p, dir: dir, addresses: map[string]string{}}
	if err := json.NewEncoder(w.In).Encode(order{static}); err != nil {
		t.Fatal(err)
	}
	for len(w.addresses) < len(static.EntryPoints) {
		line, err := w.Out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if _, entry, ok := strings.Cut(line, `msg=serving "entry point"=`); ok {
			name, address, _ := strings.Cut(strings.TrimSpace(entry), " address=")
			w.addresses[name] = address
		}
	}
	go func() { _, _ = io.Copy(io.Discard, w.Out) }()
	return w
}

// static returns settings with the entry points web and traefik, and the files of a directory.
func static(dir string) model.Static {
	return model.Static{
		EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0"},
			{Name: "traefik", Address: "127.0.0.1:0"}},
		Default: []string{"web"}, API: &model.API{Insecure: true}, Ping: &model.Ping{EntryPoint: "traefik"},
		Metrics:   &model.Metrics{EntryPoint: "traefik"},
		Providers: model.Providers{File: &model.File{Directory: filepath.Join(dir, "conf")}},
		AccessLog: &model.AccessLog{FilePath: filepath.Join(dir, "access.log")},
	}
}

// routes writes a file that sends the requests for a host to the server.
func routes(t *testing.T, dir, host, server string) {
	t.Helper()
	text := fmt.Sprintf("http:\n  routers:\n    a: {rule: Host(`%s`), service: a}\n    b: {rule: Host(`%[1]s`), service: a, "+
		"tls: {}}\n  services:\n    a: {loadBalancer: {servers: [{url: %q}]}}\n"+
		"tls:\n  certificates: [{certFile: %s/own.pem, keyFile: %[3]s/own.key}]\n", host, server, dir)
	provide(t, dir, text)
}

// provide writes a file of the provider.
func provide(t *testing.T, dir, text string) {
	t.Helper()
	conf := filepath.Join(dir, "conf")
	if err := os.MkdirAll(conf, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(conf, "routes.yml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// client has connections of its own to one address.
func client(t *testing.T, address string) *http.Client {
	var d net.Dialer
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", address)
		}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

// get sends a request to an entry point, and returns the status and the body.
func (w *world) get(entry, url string) (string, error) {
	answer, err := client(w.T, w.addresses[entry]).Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return fmt.Sprintf("%d %s", answer.StatusCode, bytes.TrimSpace(body)), err
}

func (w *world) want(entry, url, part string) {
	w.Helper()
	if got, err := w.get(entry, url); err != nil || !strings.Contains(got, part) {
		w.Errorf("GET %s: %q %v, want %q", url, got, err, part)
	}
}

// patiently asks until something holds. Nothing announces that a file was read, or that a
// process has ended.
func (w *world) patiently(what string, holds func() bool) {
	w.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("after a minute: %s", what)
		}
	}
}

// children returns the processes whose parent is the process.
func children(t *testing.T, parent int) (pids []int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, _ := os.ReadFile(path) // it may have ended
		var pid, by int
		var state string
		if at := bytes.LastIndexByte(text, ')'); at > 0 {
			_, _ = fmt.Sscan(filepath.Base(filepath.Dir(path)), &pid)
			if n, _ := fmt.Sscan(string(text[at+1:]), &state, &by); n == 2 && by == parent {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// serves returns the serving process.
func (w *world) serves() int {
	w.Helper()
	all := children(w.T, w.Cmd.Process.Pid)
	if len(all) != 1 {
		w.Fatalf("the gateway has the child processes %v, want one", all)
	}
	return all[0]
}

// ended reports whether the process has ended, reaped or not.
func ended(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(text, []byte(") Z "))
}

// server answers with the text, as soon as it may.
func server(t *testing.T, text string, begun chan<- bool, may <-chan bool) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			begun <- true
			<-may
		}
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return s.URL
}
